#pragma once

#include <bit>
#include <cstdint>

namespace fsdpbench {

/// The fp32 value of bf16 bits; exact.
inline float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// bf16 bits of `value`, rounded to nearest even; a NaN stays a (quiet) NaN. Free of branches: it vectorises.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
}

}  // namespace fsdpbench
