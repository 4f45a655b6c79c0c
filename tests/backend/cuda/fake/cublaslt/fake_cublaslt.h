#pragma once

// What tests may ask of the fake cuBLASLt beside cuBLASLt's functions. Thread-safe.

#include <chrono>
#include <cstdint>
#include <vector>

namespace fake {

/// From now on there are as many algorithms for a product as `delays`, in this order; one takes so much longer than its
/// sums do. All but the first of a product that splits its sums want no workspace. One without delay after lt_reset().
void set_lt_algorithms(std::vector<std::chrono::milliseconds> delays);

/// What was multiplied since lt_reset().
struct LtCounts {
  std::vector<std::int64_t> by_algorithm;
  /// bf16 products with a matrix whose columns do not all begin at multiples of 16 bytes: tensor cores are then fed in
  /// narrow pieces, at a fraction of their rate.
  std::int64_t narrow = 0;
};
LtCounts lt_counts();
void lt_reset();

}  // namespace fake
