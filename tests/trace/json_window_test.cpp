#include "trace/json_window.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <string_view>

namespace fsdpbench::trace {
namespace {

/// The values of a list from behind its opening bracket on, as the window hands them out.
std::string values_of(const std::string& list) {
  std::istringstream in(list);
  JsonWindow window(*in.rdbuf());
  std::string found;
  while (const char c = window.next()) {
    if (c == ']') return found + "|";
    const std::size_t bytes = window.whole_values();
    if (bytes == 0) return found + (window.ended() ? "cut off" : "too long");
    found += window.text().substr(0, bytes);
    window.drop(bytes);
    if (window.next() != ',') continue;
    window.drop(1);
    found += ',';
  }
  return found + "cut off";
}

TEST(JsonWindow, FindsWhereValuesEnd) {
  EXPECT_EQ(values_of(R"({"a":[1,{"b":"]"}]},17]{)"), R"({"a":[1,{"b":"]"}]},17|)");
  EXPECT_EQ(values_of(R"({"quote":"\"},{\\"},[[],[]]])"), R"({"quote":"\"},{\\"},[[],[]]|)");
  EXPECT_EQ(values_of(" \n 1 , 2 \t]"), "1 , 2 \t|");
  EXPECT_EQ(values_of("]"), "|");
  EXPECT_EQ(values_of(""), "cut off");
  EXPECT_EQ(values_of(R"({"a":1},{"b":"x)"), R"({"a":1},cut off)");
  EXPECT_EQ(values_of("\"\\"), "cut off");
  EXPECT_EQ(values_of(R"({"a":1},{"b":2} )"), R"({"a":1},{"b":2}cut off)");
}

TEST(JsonWindow, OfAnyLength) {
  // Values of all lengths lie across the ends of pieces, one is longer than several.
  std::string list;
  for (std::size_t i = 0; list.size() < 3 * JsonWindow::kPiece; ++i) {
    list += "{\"k\\\\\":\"" + std::string(i * 37 % 5000, 'x') + "\\\"\"},";
  }
  list += "\"" + std::string(5 * JsonWindow::kPiece, 'y') + "\",";
  list += "[" + std::string(JsonWindow::kPiece, ' ') + "]";
  EXPECT_EQ(values_of(list + std::string(2 * JsonWindow::kPiece, '\n') + "]"),
            list + std::string(2 * JsonWindow::kPiece, '\n') + "|");
  EXPECT_EQ(values_of("[" + std::string(JsonWindow::kMostValue + 2 * JsonWindow::kPiece, '[')), "too long");
  EXPECT_EQ(values_of("\"" + std::string(JsonWindow::kMostValue + 2 * JsonWindow::kPiece, 'x')), "too long");
}

/// A JSON value with brackets, quotes and backslashes where they mislead, and so many bytes that they lie anywhere in
/// the blocks in which the window looks.
std::string drawn_value(std::mt19937& random, int depth) {
  const auto pick = [&](std::size_t below) { return random() % below; };
  const auto text = [&] {
    static const std::string_view kParts[] = {"a",     "{",         "}", "[", "]", ",", R"(\")",
                                              R"(\\)", R"(\u005d)", "_", "y", "Y", " "};
    std::string drawn = "\"";
    for (std::size_t i = pick(40); i > 0; --i) drawn += kParts[pick(std::size(kParts))];
    return drawn + "\"";
  };
  if (depth == 0 || pick(3) == 0) return pick(4) == 0 ? "-12.5e3" : text();
  const bool object = pick(2) == 0;
  std::string drawn(1, object ? '{' : '[');
  for (std::size_t i = pick(5); i > 0; --i) {
    if (object) drawn += text() + std::string(pick(3), ' ') + ":";
    drawn += drawn_value(random, depth - 1) + (i > 1 ? "," : "") + std::string(pick(2), '\n');
  }
  return drawn + (object ? "}" : "]");
}

TEST(JsonWindow, FindsTheEndOfEveryDrawnValue) {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    const std::string value = "[" + drawn_value(random, 4) + "]";
    std::istringstream in(value + ",0]");
    JsonWindow window(*in.rdbuf());
    ASSERT_EQ(window.next(), '[');
    ASSERT_EQ(window.whole_value(), value.size()) << value;
    if (value.size() < 3) continue;
    std::istringstream cut(value.substr(0, value.size() - 1));
    JsonWindow shorter(*cut.rdbuf());
    ASSERT_EQ(shorter.next(), '[');
    ASSERT_EQ(shorter.whole_value(), 0U) << value;
  }
}

TEST(JsonWindow, CountsLinesAndColumnsOverWholeBlocks) {
  std::string text;
  for (std::size_t i = 0; i < 300; ++i) text += std::string(i % 70, ' ') + "\n";
  std::istringstream in(text + "   7");
  JsonWindow window(*in.rdbuf());
  EXPECT_EQ(window.next(), '7');
  EXPECT_EQ(window.lines(), 300U);
  EXPECT_EQ(window.column(), 3U);
}

TEST(JsonWindow, KnowsWhereItIs) {
  std::istringstream in("{\n  \"a\" :\n 12}");
  JsonWindow window(*in.rdbuf());
  EXPECT_EQ(window.next(), '{');
  window.drop(1);
  EXPECT_EQ(window.next(), '"');
  EXPECT_EQ(window.position(), 4U);
  EXPECT_EQ(window.lines(), 1U);
  EXPECT_EQ(window.column(), 2U);
  EXPECT_EQ(window.whole_text(), 3U);
  window.drop(3);
  EXPECT_EQ(window.next(), ':');
  window.drop(1);
  EXPECT_EQ(window.next(), '1');
  EXPECT_EQ(window.whole_value(), 2U);
  EXPECT_EQ(window.column(), 1U);
  const std::string_view enclosed = window.enclosed(2, '[', ']');
  EXPECT_EQ(enclosed, "[12]");
  EXPECT_GE(window.room_behind(), enclosed.size() + 32);
  window.restore();
  EXPECT_EQ(window.text(), "12}");
}

}  // namespace
}  // namespace fsdpbench::trace
