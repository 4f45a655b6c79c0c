#pragma once

#include <cstdint>

namespace fsdpbench::replay {

/// The finalizer of MurmurHash3: a bijection of 64 bits without visible structure. A random number for whoever knows
/// what it is for, and the same one whenever it is asked.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Of one op in one step.
constexpr std::uint64_t op_key(std::uint64_t seed, std::int64_t step, std::size_t op) {
  return mixed(seed ^ mixed(static_cast<std::uint64_t>(step) << 32 | op));
}

/// Of one rank at that op. A Weyl sequence from a key that is random already needs one multiplication more.
constexpr std::uint64_t of_rank(std::uint64_t key, std::size_t rank) {
  return mixed(key + rank * 0x9e3779b97f4a7c15ULL);
}

}  // namespace fsdpbench::replay
