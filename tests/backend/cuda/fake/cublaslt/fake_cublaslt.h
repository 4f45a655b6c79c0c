#pragma once

// Questions that tests may ask the fake cuBLASLt beside cuBLASLt's functions. Thread-safe.

#include <cstdint>

namespace fake {

/// Counts of products since lt_reset().
struct LtCounts {
  std::int64_t products = 0;
  /// bf16 products with a matrix whose columns do not all begin at multiples of 16 bytes: tensor cores are then fed in
  /// narrow pieces, at a fraction of their rate.
  std::int64_t narrow = 0;
};
LtCounts lt_counts();
void lt_reset();

}  // namespace fake
