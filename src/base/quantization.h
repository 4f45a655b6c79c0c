#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace fsdpbench {

/// Numbers of 8 or 4 bits with one fp32 scale for each block of them: integers, or fp8. Simulated only: what is sent.
///
/// [Note: quantised numbers]
/// What a rank has to send of one shard is a *part*: its numbers one after another, up to a multiple of 4 bytes, then
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
