#include "base/read_input.h"

#include <gtest/gtest.h>

namespace fsdpbench {
namespace {

TEST(CleanText, LeavesWhatCanBeRead) {
  for (const char* text : {"", "mesh.ranks = 4", "Übergröße … 10 µs – 漢字 🙂"})
    EXPECT_EQ(clean_text(text, 0), text);
}

TEST(CleanText, ShowsWhatWouldActOnATerminal) {
  EXPECT_EQ(clean_text("a\x1b[2Jb\r\a\x7f", 0), "a\\x1b[2Jb\\x0d\\x07\\x7f");
  EXPECT_EQ(clean_text("a\xc2\x9b"
                       "31m",
                       0),
            "a\\xc2\\x9b31m");  // C1: the escape sequence of one character
  EXPECT_EQ(clean_text("a\xe2\x80\xae"
                       "b",
                       0),
            "a\\xe2\\x80\\xae"
            "b");  // writes backwards from here
}

TEST(CleanText, ShowsWhatNobodySees) {
  EXPECT_EQ(clean_text("a\xd8\x9c|", 0), "a\\xd8\\x9c|");                    // the Arabic letter mark turns text around
  EXPECT_EQ(clean_text("a\xe2\x80\x8b|", 0), "a\\xe2\\x80\\x8b|");           // a space of no width
  EXPECT_EQ(clean_text("a\xef\xbb\xbf|", 0), "a\\xef\\xbb\\xbf|");           // the mark of byte order
  EXPECT_EQ(clean_text("a\xf3\xa0\x81\x81|", 0), "a\\xf3\\xa0\\x81\\x81|");  // a tag
  EXPECT_EQ(clean_text(std::string_view("a\0b", 3), 0), "a\\x00b");
}

TEST(CleanText, JsonStaysJson) {
  EXPECT_EQ(clean_json("{\n  \"a\": \"\\u001b \xe2\x80\xae \xc2\x9b \xf3\xa0\x81\x81 ü\"\n}"),
            "{\n  \"a\": \"\\u001b \\u202e \\u009b \\udb40\\udc41 ü\"\n}");
}

TEST(CleanText, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(clean_text("\xff", 0), "\\xff");
  EXPECT_EQ(clean_text("a\xe2\x80", 0), "a\\xe2\\x80");                  // cut off
  EXPECT_EQ(clean_text("\xc0\xaf", 0), "\\xc0\\xaf");                    // longer than it must be
  EXPECT_EQ(clean_text("\xed\xa0\x80", 0), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(clean_text("\xf5\x80\x80\x80", 0), "\\xf5\\x80\\x80\\x80");  // beyond Unicode
}

TEST(CleanText, LineEndsStayOnlyWhereTheyAreOurs) {
  EXPECT_EQ(clean_text("a\nerror: b\tc", 0), "a\\x0aerror: b\\x09c");
  EXPECT_EQ(clean_text("a\nb\tc\r", 0, Lines::keep), "a\nb\tc\\x0d");
}

TEST(CleanText, OfLongTextTheMiddleIsLeftOut) {
  EXPECT_EQ(clean_text("0123456789", 10), "0123456789");
  EXPECT_EQ(clean_text("0123456789a", 4), "01 … (7 bytes left out) … 9a");
  EXPECT_LT(clean_text(std::string(20'000'000, '\x1b'), kMostOfAMessage).size(), 5 * kMostOfAMessage);
}

TEST(CleanText, CutsBetweenCharacters) {
  const std::string text =
      "äöü"
      "äöü";  // two bytes each
  for (std::size_t most = 1; most < text.size(); ++most) {
    EXPECT_EQ(clean_text(text, most).find("\\x"), std::string::npos) << most;
  }
}

}  // namespace
}  // namespace fsdpbench
