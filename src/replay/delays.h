#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/lane.h"

namespace fsdpbench::replay {

/// Trouble for study: how much later than they could ops with work begin. Not part of the op's own time, as an
/// executor's injected delay is not.
struct Delays {
  std::array<double, kLaneCount> fixed_ns{};  ///< by lane
  int rank = -1;                              ///< that has the fixed ones; -1: all
  double uniform_ns = 0;                      ///< every op of every lane and rank 0 to so much, whole nanoseconds
  std::uint64_t seed = 0;
  std::vector<std::array<double, kLaneCount>> by_rank_ns;  ///< on top, by rank and lane; empty: none

  bool any() const { return uniform_ns > 0 || rank >= 0 || !by_rank_ns.empty() || fixed_ns != decltype(fixed_ns){}; }
  /// Adds them to the begins of op `op` on ranks first, first + 1 …
  void add(std::int64_t step, std::size_t op, Lane lane, std::size_t first, std::span<double> begin) const;
};

}  // namespace fsdpbench::replay
