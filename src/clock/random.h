#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace fsdpbench::clock {

/// A random number of one op in one step.
constexpr std::uint64_t op_key(std::uint64_t seed, std::int64_t step, std::size_t op) {
  return mixed(seed ^ mixed(static_cast<std::uint64_t>(step) << 32 | op));
}

/// The key of one rank at that op. A Weyl sequence from a key that is random already needs one multiplication more.
constexpr std::uint64_t of_rank(std::uint64_t key, std::size_t rank) {
  return mixed(key + rank * 0x9e3779b97f4a7c15ULL);
}

/// Random numbers one after another, the same ones from the same seed everywhere.
class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) : key_(mixed(seed + 0x9e3779b97f4a7c15ULL)) {}

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  ///< in [0, 1)
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(uniform() * static_cast<double>(count)); }
  /// Mean 0, variance 1; the sum of twelve, which is near enough to normal for what it is asked for.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t next() { return of_rank(key_, count_++); }

  std::uint64_t key_;
  std::size_t count_ = 0;
};

}  // namespace fsdpbench::clock
