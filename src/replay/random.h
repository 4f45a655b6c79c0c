#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace fsdpbench::replay {

/// A random number of one op in one step.
constexpr std::uint64_t op_key(std::uint64_t seed, std::int64_t step, std::size_t op) {
  return mixed(seed ^ mixed(static_cast<std::uint64_t>(step) << 32 | op));
}

/// Of one rank at that op. A Weyl sequence from a key that is random already needs one multiplication more.
constexpr std::uint64_t of_rank(std::uint64_t key, std::size_t rank) {
  return mixed(key + rank * 0x9e3779b97f4a7c15ULL);
}

}  // namespace fsdpbench::replay
