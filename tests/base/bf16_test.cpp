#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fsdpbench {
namespace {

TEST(Bf16, EveryBf16ValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_float(b);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      EXPECT_EQ(float_to_bf16(value), b);
    }
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  const auto rounded = [](std::uint32_t bits) { return float_to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(rounded(0x3F80'7FFF), 0x3F80);  // below half
  EXPECT_EQ(rounded(0x3F80'8000), 0x3F80);  // half, even below
  EXPECT_EQ(rounded(0x3F81'8000), 0x3F82);  // half, even above
  EXPECT_EQ(rounded(0x3F80'8001), 0x3F81);  // above half
  EXPECT_EQ(rounded(0xBF81'8000), 0xBF82);  // sign does not matter
  EXPECT_EQ(rounded(0x3FFF'FFFF), 0x4000);  // carries into the exponent
}

TEST(Bf16, LargeValuesOverflowToInfinityAndNaNStaysNaN) {
  EXPECT_EQ(bf16_to_float(float_to_bf16(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  // A NaN whose payload sits in the low half must not become infinity, nor all ones wrap to zero.
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F80'0001U)))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0xFFFF'FFFFU)))));
}

}  // namespace
}  // namespace fsdpbench
