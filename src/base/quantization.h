#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/fp8.h"

namespace fsdpbench {

/// Numbers of 8 or 4 bits, symmetric about zero, with one fp32 scale for each block of them: integers, or fp8.
///
/// [Note: quantised numbers]
/// What a rank has to send of one shard is a *part*: its numbers one after another, two of 4 bits a byte with the first
/// in the lower half, zeros up to a multiple of 4 bytes, then the scales of its blocks. Blocks are counted from the
/// part's first number; the last one may be shorter. A message is several parts.
/// With L = 127 (8 bits), 7 (4 bits) or 448 (fp8, in the form e4m3: base/fp8.h) and m the largest magnitude of a block,
/// in fp32:
///   number = x * (L / m), rounded to the nearest number, halves to even;  scale = m / L;  value = number * scale.
/// A block with an infinity or a NaN has NaN for its scale, so that all of it comes out as NaN. One that is so small
/// that L / m is infinite (m below L * 3e-39) becomes zero.
struct Quantization {
  int bits = 0;            ///< 8 or 4; 0: numbers are sent as they are
  std::int64_t block = 0;  ///< numbers a scale; even
  bool fp8 = false;        ///< the 8 bits are e4m3, no integer

  constexpr bool on() const { return bits > 0; }
  /// The largest number, L.
  constexpr float levels() const { return fp8 ? kLargestE4m3 : bits == 8 ? 127.0F : 7.0F; }
  constexpr std::int64_t blocks(std::int64_t count) const { return ceil_div(count, block); }
  /// Bytes of `count` numbers without their scales: where the scales begin.
  constexpr std::int64_t payload_bytes(std::int64_t count) const { return round_up(ceil_div(count, 8 / bits), 4); }
  /// Bytes of a part of `count` numbers.
  constexpr std::int64_t bytes(std::int64_t count) const { return payload_bytes(count) + 4 * blocks(count); }
  bool operator==(const Quantization&) const = default;
};

}  // namespace fsdpbench
