#include "foreign/watch/plain_pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdpbench::watch {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;  // NOLINT: pickles have zeros in them

std::string why_not(const std::string& bytes) {
  std::string why;
  EXPECT_FALSE(read_plain_pickle(bytes, why).has_value()) << bytes;
  return why;
}

TEST(PlainPickleTest, PlainDataIsRead) {
  std::string why;
  // {"a": [1, -2, 300, True, None, 1.5], "b": ("x", "x")} as PyTorch writes it, with "x" remembered
  const std::string bytes =
      "\x80\x02}(X\x01\0\0\0aq\0](K\x01J\xfe\xff\xff\xffM\x2c\x01\x88NG\x3f\xf8\0\0\0\0\0\0eX\x01\0\0\0bq\x01X\x01\0\0\0xq\x02h\x02\x86u."s;
  const auto value = read_plain_pickle(bytes, why);
  ASSERT_TRUE(value.has_value()) << why;
  EXPECT_EQ(value->dump(), R"({"a":[1,-2,300,true,null,1.5],"b":["x","x"]})");
}

TEST(PlainPickleTest, LongNumbersKeepTheirSign) {
  std::string why;
  EXPECT_EQ(read_plain_pickle("\x80\x02\x8a\x08\x02\x92\x55\xcd\xb7\x56\xeb\x18."s, why)->dump(),
            "1795624223861215746");
  EXPECT_EQ(read_plain_pickle("\x80\x02\x8a\x01\xff."s, why)->dump(), "-1");
}

TEST(PlainPickleTest, NothingThatRunsIsAccepted) {
  EXPECT_THAT(why_not("\x80\x02\x63os\nsystem\n(X\x02\0\0\0lstR."s), HasSubstr("GLOBAL"));
  EXPECT_THAT(why_not("\x80\x04\x8c\x02os\x8c\x06system\x93."s), HasSubstr("GLOBAL"));
  EXPECT_THAT(why_not("\x80\x02]K\x01R."s), HasSubstr("REDUCE"));
  EXPECT_THAT(why_not("\x80\x02}}b."s), HasSubstr("BUILD"));
  EXPECT_THAT(why_not("\x80\x02X\x01\0\0\0aQ."s), HasSubstr("PERSID"));
}

TEST(PlainPickleTest, WhatIsCutOffOrContradictsItselfIsRefused) {
  const std::string whole = "\x80\x02}(X\x01\0\0\0aK\x01u."s;
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(why_not(whole.substr(0, size)), "") << size;
  EXPECT_THAT(why_not("{}"), HasSubstr("does not begin"));
  EXPECT_NE(why_not("\x80\x02X\xff\xff\xff\xff!."s), "");  // text that is longer than the file
  EXPECT_NE(why_not("\x80\x02u."s), "");                   // no dictionary, no mark
  EXPECT_NE(why_not("\x80\x02}(K\x01K\x02u."s), "");       // a number as key
  EXPECT_NE(why_not("\x80\x02h\x07."s), "");               // remembered nowhere
  EXPECT_NE(why_not("\x80\x02(K\x01."s), "");              // an open mark
}

TEST(PlainPickleTest, LevelsAndRepeatedContainersAreRefused) {
  EXPECT_THAT(why_not("\x80\x02)"s + std::string(100'000, '\x85') + "."), HasSubstr("levels"));
  EXPECT_THAT(why_not("\x80\x02]q\0(h\0h\0e."s), HasSubstr("repeats"));
}

}  // namespace
}  // namespace fsdpbench::watch
