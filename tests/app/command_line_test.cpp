#include "app/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <variant>

#include "app/commands/command.h"
#include "app/commands/help.h"
#include "config/fields.h"
#include "config/find_file.h"
#include "config/support.h"
#include "runs/build_info.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "fsdpbench");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

/// Value of an option, by one of its names, as text: words with spaces between; a flag "1" or "0".
struct ValueText {
  std::string operator()(const bool* flag) const { return *flag ? "1" : "0"; }
  std::string operator()(const std::vector<std::string>* words) const {
    return fmt::format("{}", fmt::join(*words, " "));
  }
  std::string operator()(const ReadWord&) const { return "?"; }
  std::string operator()(const ReadWords&) const { return "?"; }
  template <class T>
  std::string operator()(const std::optional<T>* value) const {
    return *value ? fmt::format("{}", **value) : "none";
  }
  template <class T>
  std::string operator()(const T* value) const {
    return fmt::format("{}", *value);
  }
};

std::string value(const CommandLine& line, const std::string& name) {
  for (const Option& option : line.command.options) {
    if (option.names == name || option.names.ends_with("," + name)) return std::visit(ValueText(), option.target);
  }
  return "no such option";
}

/// Output of a command, which must be one that only prints.
std::string text(std::vector<const char*> arguments) {
  testing::internal::CaptureStdout();
  try {
    EXPECT_EQ(parse(std::move(arguments)).command.body({}), 0);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

/// "run", "trace diff" as words of a command line, and one more.
std::vector<const char*> words_of(const std::string& name, std::vector<std::string>& store, const char* more) {
  store.clear();
  std::istringstream line(name);
  for (std::string word; line >> word;) store.push_back(word);
  std::vector<const char*> words;
  for (const std::string& word : store) words.push_back(word.c_str());
  words.push_back(more);
  return words;
}

std::vector<std::string> help_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(CommandLineTest, Run) {
  const CommandLine line =
      parse({"run", "p.toml", "--set", "a.b=1", "-s", "c.d=x y", "--set=e.f=[1,2]", "--out", "somewhere", "-q"});
  EXPECT_EQ(line.command.name, "run");
  EXPECT_TRUE(line.command.runs_ranks);
  EXPECT_EQ(value(line, "PROFILE"), "p.toml");
  EXPECT_EQ(value(line, "--set"), "a.b=1 c.d=x y e.f=[1,2]");
  EXPECT_EQ(value(line, "--out"), "somewhere");
  EXPECT_TRUE(line.quiet);
}

TEST(CommandLineTest, Ranks) {
  EXPECT_EQ(value(parse({"run", "p.toml"}), "--set"), "");
  EXPECT_EQ(value(parse({"run", "p.toml", "--ranks", "8"}), "--set"), "mesh.ranks=8");
  EXPECT_THAT(config_error([] { parse({"run", "p.toml", "--ranks", "0"}); }), HasSubstr("--ranks"));
}

TEST(CommandLineTest, SetMayComeBeforeTheProfile) {
  const CommandLine line = parse({"run", "--set", "a.b=1", "p.toml"});
  EXPECT_EQ(value(line, "PROFILE"), "p.toml");
  EXPECT_EQ(value(line, "--set"), "a.b=1");
}

TEST(CommandLineTest, Explain) {
  EXPECT_EQ(value(parse({"explain", "p.toml", "--format", "collectives"}), "--format"), "collectives");
  EXPECT_EQ(value(parse({"explain", "p.toml"}), "--format"), "table");
  EXPECT_EQ(value(parse({"explain", "--schedule", "p.toml"}), "PROFILE"), "p.toml");
}

TEST(CommandLineTest, RanksAndClusterAreOverridesThatWin) {
  for (const char* command : {"simulate", "expect"}) {
    const CommandLine line = parse({command, "quickstart", "-c", "dgx-h100", "--ranks", "64", "-s", "mesh.ranks=2"});
    EXPECT_EQ(value(line, "--set"), "mesh.ranks=2 simulate.cluster=dgx-h100 mesh.ranks=64") << command;
  }
  EXPECT_EQ(value(parse({"tune", "quickstart", "--ranks", "64"}), "--set"), "mesh.ranks=64");
  EXPECT_THAT(config_error([] { parse({"explain", "quickstart", "--ranks", "0"}); }), HasSubstr("from 1 to 1048576"));
  EXPECT_THAT(config_error([] {
                parse({"explain", "quickstart", "--schedule=3"});
              }),
              HasSubstr("--schedule takes no value"));
}

TEST(CommandLineTest, ALetterMeansOneThing) {
  std::map<std::string, std::string> meanings;
  for (const Command& command : all_commands()) {
    if (command.name == "collectives") continue;  // it has the letters of nccl-tests
    for (const Option& option : command.options) {
      const auto comma = option.names.find(',');
      if (comma == std::string::npos) continue;
      const std::string name = option.names.substr(comma + 1);
      EXPECT_EQ(meanings.try_emplace(option.names.substr(0, comma), name).first->second, name) << command.name;
    }
  }
}

TEST(CommandLineTest, CompletionHasAllCommands) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = text({"completion", shell});
    for (const Command& command : all_commands()) {
      EXPECT_THAT(script, HasSubstr(command.name.substr(command.name.find(' ') + 1))) << shell;
    }
    EXPECT_THAT(script, HasSubstr("overwrite")) << shell;
  }
}

TEST(CommandLineTest, Doctor) { EXPECT_EQ(value(parse({"doctor", "--json"}), "--json"), "1"); }

TEST(CommandLineTest, CommandsOfTwoWords) {
  const CommandLine explain = parse({"trace", "explain", "a.json", "b", "--out", "d"});
  EXPECT_EQ(explain.command.name, "trace explain");
  EXPECT_EQ(value(explain, "TRACE"), "a.json b");
  EXPECT_EQ(value(explain, "--out"), "d");
  EXPECT_THAT(text({"trace", "explain", "--help"}),
              testing::AllOf(HasSubstr("Usage: fsdpbench trace explain"), HasSubstr("Exit codes")));
  EXPECT_THAT(text({"trace", "--help"}), testing::AllOf(HasSubstr("  trace diff "), HasSubstr("  trace explain ")));
  EXPECT_THAT(config_error([] { parse({"trace", "explain"}); }), HasSubstr("fsdpbench trace explain --help"));
  EXPECT_THAT(config_error([] { parse({"trace"}); }), HasSubstr("fsdpbench trace --help"));
}

TEST(CommandLineTest, MistakesNameThemselvesAndTheHelp) {
  EXPECT_THAT(config_error([] {
                parse({"rum", "p.toml"});
              }),
              HasSubstr("no command 'rum'; the nearest is 'run'; see fsdpbench --help."));
  EXPECT_THAT(config_error([] { parse({"run"}); }),
              testing::AllOf(HasSubstr("PROFILE"), HasSubstr("fsdpbench run --help")));
  EXPECT_THAT(config_error([] { parse({"run", "p.toml", "--sett", "x"}); }), HasSubstr("--sett"));
  EXPECT_THAT(config_error([] { parse({"explain", "p.toml", "--format", "xml"}); }), HasSubstr("xml"));
}

TEST(CommandLineTest, UnknownOptionsGetTheNearest) {
  EXPECT_EQ(config_error([] {
              parse({"run", "p.toml", "--rank", "4"});
            }),
            "run has no option --rank; the nearest is --ranks; see fsdpbench run --help.");
  EXPECT_EQ(config_error([] {
              parse({"explain", "p.toml", "--cluster", "dgx-h100"});
            }),
            "explain has no option --cluster, which simulate, tune, expect, trace explain have; see fsdpbench explain "
            "--help.");
  EXPECT_THAT(config_error([] {
                parse({"run", "--rank=4"});
              }),
              HasSubstr("run has no option --rank; the nearest is --ranks"))
      << "the more helpful complaint than that there is no PROFILE";
  EXPECT_THAT(config_error([] {
                parse({"--cluster", "dgx-h100", "simulate", "quickstart"});
              }),
              HasSubstr("--cluster of simulate stands before the command; write fsdpbench simulate … --cluster"));
  EXPECT_THAT(config_error([] { parse({"compare", "a", "--trails", "20"}); }), HasSubstr("the nearest is --trials"));
  EXPECT_THAT(config_error([] {
                parse({"trace", "explain", "--quite", "a.json"});
              }),
              HasSubstr("trace explain has no option --quite"));
  EXPECT_THAT(config_error([] {
                parse({"run", "a.toml", "b.toml"});
              }),
              HasSubstr("run takes no further argument 'b.toml'; see fsdpbench run --help."));
}

TEST(CommandLineTest, UnknownCommandsGetTheNearest) {
  EXPECT_THAT(
      config_error([] {
        parse({"trace", "explan", "a.json"});
      }),
      HasSubstr("There is no command 'trace explan'; the nearest is 'trace explain'; see fsdpbench trace --help."));
  EXPECT_THAT(config_error([] { parse({"quickstart"}); }), HasSubstr("the nearest is 'run quickstart'"));
}

TEST(CommandLineTest, WhatDoesNothingBesideFromIsRefused) {
  EXPECT_EQ(value(parse({"explain", "--from", "out"}), "--from"), "out");
  for (const std::vector<const char*>& more : {std::vector{"--format", "json"}, std::vector{"--set", "mesh.ranks=2"}}) {
    std::vector<const char*> arguments{"explain", "--from", "out"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_THAT(config_error([&] { parse(arguments); }),
                testing::AllOf(HasSubstr("--from shows a result as it was measured"), HasSubstr(more.front())));
  }
}

TEST(CommandLineTest, Compare) {
  const CommandLine plain = parse({"compare", "a"});
  EXPECT_EQ(value(plain, "--trials") + value(plain, "--rerun") + value(plain, "--fail-if-slower"), "none00");
  const CommandLine full = parse({"compare", "a", "b", "-n", "5", "--rerun", "--fail-if-slower"});
  EXPECT_EQ(value(full, "--trials") + value(full, "--rerun") + value(full, "--fail-if-slower"), "511");
}

TEST(CommandLineTest, ReportTakesOneFolderOrTwo) {
  EXPECT_EQ(value(parse({"report", "a"}), "DIR"), "a");
  EXPECT_EQ(value(parse({"report", "a", "b", "-o", "c"}), "DIR"), "a b");
  EXPECT_THAT(config_error([] { parse({"report", "a", "b", "c"}); }), HasSubstr("report"));
}

TEST(CommandLineTest, AListIsOneWord) {
  const CommandLine line = parse({"tune", "--export", "deepspeed,accelerate", "p.toml"});
  EXPECT_EQ(value(line, "PROFILE"), "p.toml");
  EXPECT_EQ(value(line, "--export"), "deepspeed accelerate");
}

// No line is wider than 120 columns but command lines, which are never broken.
TEST(CommandLineTest, EveryHelpFitsAScreen) {
  constexpr std::size_t kMostLines = 52, kWidth = 120;
  EXPECT_LE(help_lines(text({"--help"})).size(), 46U);
  std::vector<std::string> store;
  for (const Command& command : all_commands()) {
    const std::string help = text(words_of(command.name, store, "--help"));
    EXPECT_THAT(help, HasSubstr("Usage: fsdpbench " + command.name + " [OPTIONS]"));
    const std::vector<std::string> lines = help_lines(help);
    EXPECT_LE(lines.size(), kMostLines) << command.name;
    for (const std::string& line : lines) {
      const auto width = std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; });
      if (line.find("fsdpbench ") != std::string::npos) continue;
      EXPECT_LE(static_cast<std::size_t>(width), kWidth) << line;
    }
  }
}

TEST(CommandLineTest, TheHelpHasEveryCommandOnce) {
  const std::vector<std::string> lines = help_lines(text({}));
  EXPECT_EQ(lines, help_lines(text({"--help"})));
  EXPECT_EQ(lines, help_lines(text({"help"})));
  for (const Command& command : all_commands()) {
    EXPECT_EQ(
        std::ranges::count_if(lines, [&](const auto& line) { return line.starts_with("  " + command.name + " "); }), 1)
        << command.name;
    EXPECT_FALSE(command.purpose.empty()) << command.name;
    for (const Option& option : command.options) {
      EXPECT_TRUE(!option.meaning.empty() || command.name == "collectives") << command.name << " " << option.names;
    }
  }
}

TEST(CommandLineTest, HelpIsACommand) {
  EXPECT_EQ(text({"help", "run"}), text({"run", "--help"}));
  EXPECT_EQ(text({"help", "trace", "explain"}), text({"trace", "explain", "--help"}));
  EXPECT_THAT(text({"help", "exit-codes"}), HasSubstr("130  stopped by Ctrl-C"));
  EXPECT_THAT(config_error([] { text({"help", "simulat"}); }), HasSubstr("the nearest is 'simulate'"));
  EXPECT_EQ(config_error([] { text({"help", "zzz"}); }), "There is no help for 'zzz'; see fsdpbench --help.");
}

TEST(CommandLineTest, HelpExplainsKeys) {
  const std::string keys = text({"help", "keys"});
  for (const config::Field& field : config::fields()) {
    EXPECT_THAT(keys, HasSubstr("\n  " + field.table + " ")) << "a section without a line";
    EXPECT_THAT(text({"help", "keys", field.table.c_str()}), HasSubstr(field.name() + " = "));
  }
  EXPECT_THAT(text({"help", "keys", "mesh.ranks"}), testing::StartsWith("mesh.ranks = "));
  EXPECT_EQ(text({"help", "mesh.ranks"}), text({"help", "keys", "mesh.ranks"}));
  EXPECT_THAT(config_error([] { text({"help", "keys", "mesh.rank"}); }), HasSubstr("'mesh.ranks'"));
  EXPECT_THAT(config_error([] { text({"help", "keys", "mash"}); }), HasSubstr("there are model, data, mesh"));
}

TEST(CommandLineTest, HelpNamesModelsThatThereAre) {
  const std::string help = text({"help", "keys"});
  const auto begin = help.find("model.preset ") + std::string("model.preset ").size();
  std::istringstream line(help.substr(begin, help.find(" …", begin) - begin));
  int named = 0;
  for (std::string name; line >> name; ++named) {
    const std::string stem = name.substr(0, name.find(','));
    EXPECT_TRUE(std::filesystem::exists(config::home_folder() / "profiles/models" / (stem + ".toml"))) << stem;
  }
  EXPECT_GE(named, 3);
}

/// Every key that a help speaks of exists.
TEST(CommandLineTest, HelpNamesTrueKeys) {
  std::string help = text({"help", "keys"});
  std::vector<std::string> store;
  for (const Command& command : all_commands()) help += text(words_of(command.name, store, "--help"));
  int keys = 0;
  for (const char* table :
       {" model.", " data.", " mesh.", " train.", " fsdp.", " emulate.", " inject.", " simulate."}) {
    for (auto at = help.find(table); at != std::string::npos; at = help.find(table, at + 1)) {
      const std::string name = help.substr(at + 1, help.find_first_of(" ;=,:)\n", at + 1) - at - 1);
      if (name.ends_with("*") || name.ends_with(".toml")) continue;
      EXPECT_NE(config::find_field(name), nullptr) << name;
      ++keys;
    }
  }
  EXPECT_GT(keys, 15);
}

TEST(CommandLineTest, Version) {
  EXPECT_EQ(text({"--version"}), version_line() + "\n");
  EXPECT_THAT(version_line(), HasSubstr(build_info().git_revision));
  EXPECT_FALSE(build_info().git_revision.empty());
}

}  // namespace
}  // namespace fsdpbench::app
