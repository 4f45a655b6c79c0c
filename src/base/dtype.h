#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace fsdpbench {

/// Element type of a tensor. Reductions over bf16 accumulate in fp32 everywhere. i32 holds tokens, f64 sums of squares,
/// u8 bytes of quantised numbers (base/dtype.h): they are moved, never computed with like the others.
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

/// Numbers of 8 or 4 bits with one fp32 scale for each block of them: integers, or fp8. Simulated only: what is sent.
///
/// [Note: quantised numbers]
/// A *part* is what a rank has to send of one shard: its numbers one after another, up to a multiple of 4 bytes, then
/// the scales of its blocks. Blocks are counted from the part's first number; the last one may be shorter. A message is
/// several parts.
struct Quantization {
  int bits = 0;            ///< 8 or 4; 0: numbers are sent as they are
  std::int64_t block = 0;  ///< numbers a scale; even
  bool fp8 = false;        ///< the 8 bits are e4m3, no integer

  constexpr bool on() const { return bits > 0; }
  constexpr std::int64_t blocks(std::int64_t count) const { return ceil_div(count, block); }
  /// Bytes of `count` numbers without their scales: where the scales begin.
  constexpr std::int64_t payload_bytes(std::int64_t count) const { return round_up(ceil_div(count, 8 / bits), 4); }
  /// Bytes of a part of `count` numbers.
  constexpr std::int64_t bytes(std::int64_t count) const { return payload_bytes(count) + 4 * blocks(count); }
  bool operator==(const Quantization&) const = default;
};

}  // namespace fsdpbench
