#include "base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fsdpbench {
namespace {

TEST(Fp8, EveryNumberComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7F) == 0x7F) continue;  // NaN
    const float value = e4m3_to_float(static_cast<std::uint8_t>(bits));
    EXPECT_EQ(float_to_e4m3(value), bits) << value;
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    EXPECT_EQ(std::fabs(value), exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
    EXPECT_EQ(std::signbit(value), bits >= 128);
  }
}

TEST(Fp8, RoundsToTheNearestHalvesToTheEven) {
  for (int bits = 0; bits < 0x7E; ++bits) {
    const float below = e4m3_to_float(static_cast<std::uint8_t>(bits));
    const float above = e4m3_to_float(static_cast<std::uint8_t>(bits + 1));
    const float half = (below + above) / 2;
    EXPECT_EQ(float_to_e4m3(std::nextafter(half, below)), bits) << half;
    EXPECT_EQ(float_to_e4m3(std::nextafter(half, above)), bits + 1) << half;
    EXPECT_EQ(float_to_e4m3(half), bits % 2 == 0 ? bits : bits + 1) << half;
    EXPECT_EQ(float_to_e4m3(-half), 0x80 | (bits % 2 == 0 ? bits : bits + 1)) << half;
  }
}

TEST(Fp8, WhatIsBeyondTheLargestBecomesIt) {
  for (const float value : {448.0F, 449.0F, 464.0F, 1e30F, INFINITY}) {
    EXPECT_EQ(float_to_e4m3(value), 0x7E) << value;
    EXPECT_EQ(float_to_e4m3(-value), 0xFE) << value;
  }
}

}  // namespace
}  // namespace fsdpbench
