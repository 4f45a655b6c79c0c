#pragma once

#include <cstdint>

namespace fsdpbench {

/// Ring algorithms over n ranks: in one pass every rank sends (n-1)/n of the message in n-1 hops. An all-gather (of its
/// output), a reduce-scatter (of its input) and a broadcast take one pass, an all-reduce two.
constexpr int ring_hops(int ranks, int passes = 1) { return passes * (ranks - 1); }

/// Share of the message that each rank sends.
constexpr double ring_share(int ranks, int passes = 1) { return static_cast<double>(ring_hops(ranks, passes)) / ranks; }

/// Bytes of a message of `bytes` that each rank sends, rounded down where it does not split evenly.
constexpr std::int64_t ring_bytes(std::int64_t bytes, int ranks, int passes = 1) {
  return ring_hops(ranks, passes) * bytes / ranks;
}

}  // namespace fsdpbench
