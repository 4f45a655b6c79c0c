#include "record/table.h"

#include <algorithm>
#include <sstream>

#include "config/support.h"

namespace fsdpbench::app {
namespace {

TEST(Shown, HasThreeDigitsInTheUnitThatSuitsItAndNoExponent) {
  EXPECT_EQ(shown(68630, "us"), "68.6 ms");
  EXPECT_EQ(shown(41598.049, "MiB"), "40.6 GiB");
  EXPECT_EQ(shown(1024 * 1024, "B"), "1.00 MiB");
  EXPECT_EQ(shown(61169.786, "MB"), "61.2 GB");
  EXPECT_EQ(shown(694.57, "ms"), "695 ms");
  EXPECT_EQ(shown(0.35, "ms"), "350 us");
  EXPECT_EQ(shown(0, "ms"), "0 ms");
  EXPECT_EQ(shown(377417, "1/s"), "377417 1/s");
  EXPECT_EQ(shown(5e12, "s"), "5000000000000 s");
  EXPECT_EQ(shown(3, ""), "3.00");
}

TEST(Shown, OfAUnitTheFirstWordCountsAndPartsArePercent) {
  EXPECT_EQ(shown(5562, "us of waiting for the last rank"), "5.56 ms");
  EXPECT_EQ(shown(0.0938, "of a step"), "9.38 %");
  EXPECT_EQ(shown(1.927, "times its time alone"), "1.93 times");
}

TEST(Shown, BesideEachOtherNumbersHaveTheUnitOfTheLargest) {
  const Shown time("ms", 1234);
  EXPECT_EQ(time.unit(), "s");
  EXPECT_EQ(time.number(12), "0.0120");
  EXPECT_EQ(time.range(999, 1234), "0.999 to 1.23");
  EXPECT_EQ(time.change(-40), "-0.0400");
  EXPECT_EQ(time.change(40), "+0.0400");
}

TEST(ThreeDigits, RoundsBeforeItCountsThem) {
  EXPECT_EQ(three_digits(99.96), "100");
  EXPECT_EQ(three_digits(9.996), "10.0");
  EXPECT_EQ(three_digits(0.99951), "1.00");
  EXPECT_EQ(three_digits(1234.5), "1234");
  EXPECT_EQ(three_digits(0.0000004), "0");
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, width_of(line));
  return most;
}

TEST(FormatTable, TextGoesOnSeveralLinesWhereTheTableWouldBeWiderThanItsTerminal) {
  const Table table{.title = "",
                    .header = {"rule", "figure", "ms"},
                    .rows = {{"floor", "all_gather of 4.00 MiB on eight ranks of one node", "12.5"}, {"a", "b", "7"}}};
  EXPECT_EQ(widest(format_table(table, 100)), 62U);
  EXPECT_EQ(format_table(table, 40),
            "rule   figure                         ms\n"
            "-----  ---------------------------  ----\n"
            "floor  all_gather of 4.00 MiB on    12.5\n"
            "       eight ranks of one node\n"
            "a      b                               7\n");
}

TEST(FormatTable, NumbersAndWordsAreNeverCut) {
  const Table table{.title = "", .header = {}, .rows = {{"123456789", "awordthathasnoblankinit"}}};
  EXPECT_EQ(format_table(table, 20), "123456789  awordthathasnoblankinit\n");
}

TEST(FormatTable, NamesGoOnBehindADot) {
  const Table table{.title = "", .header = {"fsdp.backward_prefetch"}, .rows = {{"pre"}, {"fsdp.layout=flat b"}}};
  EXPECT_EQ(format_table(table, 17), "fsdp.backward_\nprefetch\n-----------------\npre\nfsdp.layout=flat\nb\n");
}

TEST(FormatTable, WhatGoesOnKeepsItsIndent) {
  const Table table{.title = "", .header = {}, .rows = {{"  one two three four", "1"}}};
  EXPECT_EQ(format_table(table, 16), "  one two      1\n  three four\n");
}

TEST(FormatTable, WithoutATerminalHasAHundredColumns) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  EXPECT_LE(widest(format_table({.title = "", .header = {}, .rows = {{words, words}}})), 100U);
}

TEST(MarkdownTable, ShowsMarkupOfCellsAsItIs) {
  EXPECT_EQ(markdown_table({.title = "", .header = {"a", "b"}, .rows = {{"x|y", "<b>"}}}),
            "| a | b |\n|---|---|\n| x\\|y | \\<b\\> |\n");
}

TEST(TextLine, IsWrappedOnATerminalAndOneLineWhereThereIsNone) {
  EXPECT_EQ(text_line("  one two three four five", 12), "  one two\n  three four\n  five\n");
  EXPECT_EQ(text_line("- one two three four", 12), "- one two\n  three four\n");
  const std::string words(300, 'a');
  EXPECT_EQ(text_line(words + " b", 100), words + "\nb\n");
  if (terminal_columns(stdout) > 0) GTEST_SKIP() << "the rest is of pipes and files";
  EXPECT_EQ(text_line(words + " b"), words + " b\n");
}

}  // namespace
}  // namespace fsdpbench::app
