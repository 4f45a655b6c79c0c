#include "base/bytes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fsdpbench {
namespace {

TEST(FormatBytes, UsesBinaryUnitsFromKiBUp) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{1} << 60), "1.00 EiB");
}

TEST(CheckedSizes, DoNotWrap) {
  constexpr std::int64_t kMost = INT64_MAX;
  EXPECT_EQ(checked_sum(kMost - 1, 1), kMost);
  EXPECT_THROW(checked_sum(kMost, 1), ResourceError);
  EXPECT_EQ(checked_product(1 << 30, 1 << 30, 7), std::int64_t{7} << 60);
  EXPECT_THROW(checked_product(1 << 30, 1 << 30, 8), ResourceError);
  EXPECT_THROW(checked_product(std::int64_t{1} << 40, std::int64_t{1} << 40, 0), ResourceError);
  EXPECT_EQ(ceil_div(kMost, 2), std::int64_t{1} << 62);
  EXPECT_EQ(round_up(0, 512), 0);
  EXPECT_EQ(round_up(513, 512), 1024);
  EXPECT_THROW(round_up(kMost - 1, 512), ResourceError);
}

TEST(FormatCount, HasThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 k");
  EXPECT_EQ(format_count(49'536), "49.5 k");
  EXPECT_EQ(format_count(124'439'808), "124 M");
  EXPECT_EQ(format_count(999'600'000), "1.00 B");
  EXPECT_EQ(format_count(8'030'261'248), "8.03 B");
  EXPECT_EQ(format_count(405'853'388'800), "406 B");
  EXPECT_EQ(format_count(1'000'000'000'000), "1.00 T");
}

TEST(ParseBytes, KnowsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("64MiB"), 64 << 20);
  EXPECT_EQ(parse_bytes("64MB"), 64'000'000);
  EXPECT_EQ(parse_bytes(" 1.5 GB "), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2 TiB"), std::int64_t{2} << 40);
  EXPECT_EQ(parse_bytes("7 B"), 7);
  EXPECT_EQ(parse_bytes("0"), 0);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "MiB", "-1", "nan", "inf", "1 mib", "1 XB", "1MiB2", "1e30 TB", "0x10"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(ParseBytes, ReadsWhatFormatBytesWrites) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{512}, std::int64_t{1} << 20, std::int64_t{5} << 40}) {
    EXPECT_EQ(parse_bytes(format_bytes(bytes)), bytes);
  }
}

TEST(Rounding, UpToMultiples) {
  EXPECT_EQ(round_up(0, 512), 0);
  EXPECT_EQ(round_up(1, 512), 512);
  EXPECT_EQ(round_up(512, 512), 512);
  EXPECT_EQ(ceil_div(7, 3), 3);
  EXPECT_EQ(ceil_div(6, 3), 2);
}

}  // namespace
}  // namespace fsdpbench
