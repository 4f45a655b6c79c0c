#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "replay/measured_times.h"
#include "replay/op_times.h"
#include "replay/uncertainty.h"

namespace fsdpbench::replay {

/// What else than the schedule is to be different from the run that was measured.
struct Changes {
  double link_scale = 1;               ///< bytes flow so many times as fast; what a hop takes stays
  double hop_ns = 0;                   ///< a hop takes so much longer
  double flops_scale = 1;              ///< modules compute so many times as fast
  std::vector<double> compute_factor;  ///< by rank: what its compute lane takes over what it took; empty: 1
  std::vector<double> link_was;        ///< by rank: factors of its link in the run; empty: 1
  std::vector<double> link_is;         ///< and now
  double issue_ns = 0;                 ///< the host takes so much longer to issue an op
  int straggler = -1;                  ///< this rank computes as the median of the others; -1: none
};

/// Where the time of an op comes from, the surest first.
enum class TimeOrigin : std::uint8_t {
  measured,  ///< this op, or one of its kind that does as much
  scaled,    ///< the same module's, by FLOPs
  fitted,    ///< its kind's, by size
  borrowed,  ///< its kind was never measured: those that do the same sort of work, by size
};
/// The enumerator's own name.
std::string_view to_string(TimeOrigin origin);

/// Times of a schedule that was never run.
struct WhatIfTimes {
  /// `given` and `given_issue` for steps 0 to the last measured one; those before the first measured step take what
  /// that one does. What else the host takes, and delays, are the caller's.
  OpTimes times;
  EnumTable<TimeOrigin, int> origins;  ///< ops with work of the last step, by origin
  ReachCounts reach{};                 ///< the same ops by how far they are from what was measured
};

/// What the ops of `other` take: the same model on the same ranks, another schedule. Each op takes in each step what it
/// or its like took in that step on that rank. Throws ConfigError if nothing was measured that an op's time could be
/// taken from.
WhatIfTimes what_if_times(const MeasuredTimes& measured, const schedule::Training& other, const Changes& changes = {});

}  // namespace fsdpbench::replay
