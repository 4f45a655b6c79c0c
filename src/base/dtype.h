#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace fsdpbench {

/// Element type of a tensor. Reductions over bf16 accumulate in fp32 everywhere. i32 holds tokens, f64 sums of squares,
/// u8 plain bytes: they are moved, never computed with like the others.
enum class DType : std::uint8_t { f32, bf16, i32, f64, u8 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::bf16 ? 2 : dtype == DType::f64 ? 8 : dtype == DType::u8 ? 1 : 4;
}

/// "fp32", "bf16", "i32", "fp64" or "u8": the spelling used in profiles and result files.
std::string_view to_string(DType dtype);

/// Inverse of to_string; nothing for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);

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
