#pragma once

#include <bit>
#include <cstdint>

namespace fsdpbench {

/// The largest number of fp8 in the form e4m3: one sign, four bits of exponent, three of mantissa, no infinities.
inline constexpr float kLargestE4m3 = 448.0F;

/// e4m3 bits of `value`, rounded to nearest, halves to even; what is beyond the largest number becomes the largest.
/// Not for NaNs. Free of branches: it vectorises.
constexpr std::uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80U;
  const std::uint32_t most = std::bit_cast<std::uint32_t>(kLargestE4m3);
  const std::uint32_t given = bits & 0x7FFFFFFFU;
  const std::uint32_t magnitude = given < most ? given : most;
  // Exponents are counted from 127 and from 7.
  const std::uint32_t normal = (magnitude + 0x7FFFFU + (magnitude >> 20 & 1U) - (120U << 23)) >> 20;
  // Below 2^-6 numbers are multiples of 2^-9, the worth of the last bit of a sum with 2^14.
  constexpr float kShift = 16384.0F;
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kShift) - std::bit_cast<std::uint32_t>(kShift);
  return static_cast<std::uint8_t>(sign | (magnitude < (121U << 23) ? small : normal));
}

/// The value of e4m3 bits other than NaN's; exact.
constexpr float e4m3_to_float(std::uint8_t bits) {
  constexpr float kRebias = 0x1p120F;
  const auto magnitude = std::bit_cast<float>((bits & 0x7FU) << 20) * kRebias;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (bits & 0x80U) << 24);
}

}  // namespace fsdpbench
