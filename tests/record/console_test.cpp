#include <algorithm>

#include "config/support.h"
#include "record/console.h"
#include "record/table.h"
#include "runs/measure.h"

namespace fsdpbench::app {
namespace {

/// A console whose output can be read back.
class Captured {
 public:
  explicit Captured(Console::Options options = {}) : console_(with_files(options)) {}
  ~Captured() {
    std::fclose(results_);
    std::fclose(messages_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  Console& operator()() { return console_; }
  std::string results() const { return read(results_); }
  std::string messages() const { return read(messages_); }

 private:
  Console::Options with_files(Console::Options options) {
    options.results = results_ = std::tmpfile();
    options.messages = messages_ = std::tmpfile();
    return options;
  }
  static std::string read(std::FILE* file) {
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    return text;
  }
  std::FILE* results_ = nullptr;
  std::FILE* messages_ = nullptr;
  Console console_;
};

TEST(Console, ResultsAndMessagesGoSeparateWays) {
  Captured console;
  console().print("result\n");
  console().info("information");
  console().warning("careful");
  console().error("wrong");
  EXPECT_EQ(console.results(), "result\n");
  EXPECT_EQ(console.messages(), "information\nwarning: careful\nerror: wrong\n");
}

TEST(Console, QuietKeepsResultsWarningsAndErrors) {
  Captured console({.quiet = true});
  console().info("information");
  console().progress("step 1");
  console().warning("careful");
  console().print("result\n");
  EXPECT_EQ(console.results(), "result\n");
  EXPECT_EQ(console.messages(), "warning: careful\n");
}

TEST(Console, WhatComesFromOutsideCannotActOnTheTerminal) {
  Captured console;
  console().error("p.toml: '\x1b[2J\nerror: forged'");
  console().progress("round 1: \x1b]0;title\x07");
  console().print("a\x1b[31m\nb\n");
  EXPECT_EQ(console.messages(), "error: p.toml: '\\x1b[2J\\x0aerror: forged'\nround 1: \\x1b]0;title\\x07\n");
  EXPECT_EQ(console.results(), "a\\x1b[31m\nb\n");
}

TEST(Console, LongValuesAreCutInTheMiddle) {
  Captured console;
  console().error("p.toml:3: '" + std::string(20'000'000, 'x') + "' is no number; expected one.");
  EXPECT_LT(console.messages().size(), 2200U);
  EXPECT_THAT(console.messages(), ::testing::HasSubstr("bytes left out"));
  EXPECT_THAT(console.messages(), ::testing::EndsWith("' is no number; expected one.\n"));
  Table table;
  table.header = {"key", "A"};
  table.rows = {{"data.path", std::string(20'000'000, 'x')}};
  EXPECT_LT(format_table(table).size(), 1000U);
}

TEST(Console, ColoursTheLabelOnly) {
  Captured console({.colour = true});
  console().warning("careful");
  EXPECT_EQ(console.messages(), "\033[33mwarning: \033[0mcareful\n");
}

TEST(Console, ProgressIsPlainLinesWhenPiped) {
  Captured console;
  console().progress("step 1");
  console().progress("step 2");
  console().clear_progress();
  EXPECT_EQ(console.messages(), "step 1\nstep 2\n");
}

TEST(Console, ProgressIsOneLineOnATerminalAndGivesWay) {
  Captured console({.terminal = true});
  console().progress("step 1");
  console().progress("step 2");
  console().warning("careful");
  EXPECT_EQ(console.messages(), "step 1\r\033[2Kstep 2\r\033[2Kwarning: careful\n");
}

TEST(Table, TextFromOutsideMakesNoLines) {
  const std::string table = format_table({"title\nforged", {"head\n", "b"}, {{"cell\nforged", "\u202eb"}}});
  EXPECT_EQ(std::ranges::count(table, '\n'), 4);  // title, header, rule and one row
  EXPECT_EQ(text_line("worse: a\nbetter: b"), "worse: a\\x0abetter: b\n");
}

TEST(Progress, NamesStepLossAndRemainingTime) {
  Captured console;
  {
    Progress progress(console(), 100, 0);
    progress.update(1, engine::StepLoss{1, 5.5}, 1'000'000'000);
    progress.update(2, engine::StepLoss{2, 5.25}, 2'000'000'000);  // too soon after the last line
    progress.update(40, engine::StepLoss{39, 5.0}, 40'000'000'000);
    progress.update(100, std::nullopt, 100'000'000'000);
  }
  EXPECT_EQ(console.messages(),
            "step   1/100  loss 5.5000  1 min 39 s left\n"
            "step  40/100  loss 5.0000 (step 39)  1 min 00 s left\n"
            "step 100/100  1 min 40 s\n");
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0.25), "0.2 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(61), "1 min 01 s");
  EXPECT_EQ(format_duration(3725), "1 h 02 min");
}

TEST(Table, NumbersAreFlushRightAndUnitsInTheirOwnColumn) {
  EXPECT_EQ(
      format_table(
          {"Title", {"what", "value", "unit"}, {{"step", "9.5", "ms"}, {"tokens", "12345", "1/s"}, {"loss", "-", ""}}}),
      "Title\n"
      "what    value  unit\n"
      "------  -----  ----\n"
      "step      9.5  ms\n"
      "tokens  12345  1/s\n"
      "loss        -\n");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(format_table({"", {}, {{"α·hops", "x"}, {"longer name", "y"}}}), "α·hops       x\nlonger name  y\n");
}

TEST(Table, BlankAndEmpty) {
  EXPECT_EQ(format_table({"", {}, {{"a", "b"}, {""}, {"c", "d"}}}), "a  b\n\nc  d\n");
  EXPECT_EQ(format_table({}), "");
}

TEST(Console, AResultThatCannotBeWrittenIsNotForgotten) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Console::Options options;
  options.results = full;
  Console console(options);
  EXPECT_EQ(console.unwritten(), 0);
  console.print("a result\n");
  EXPECT_EQ(console.unwritten(), ENOSPC);
  console.print("another\n");
  EXPECT_EQ(console.unwritten(), ENOSPC);
  std::fclose(full);
}

TEST(Console, ColoursVerdictsInColumnsAndHeadlinesOfTerminals) {
  const std::string text = "PASS: 4 ranks\nfail  floor  passes\na     inconclusive\nfailure: pass it\n";
  Captured terminal({.verdicts = true});
  terminal().print(text);
  EXPECT_EQ(terminal.results(),
            "\033[32mPASS\033[0m: 4 ranks\n\033[31mfail\033[0m  floor  passes\n"
            "a     \033[33minconclusive\033[0m\nfailure: pass it\n");
  Captured file;
  file().print(text);
  EXPECT_EQ(file.results(), text);
}

}  // namespace
}  // namespace fsdpbench::app
