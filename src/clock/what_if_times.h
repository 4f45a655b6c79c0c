#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "clock/forecast.h"
#include "clock/measured_times.h"
#include "clock/op_times.h"

namespace fsdpbench::clock {

/// Source of an op's time, the surest first.
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
  /// 95 of 100 such steps lie within so much of this one because of ops that were not measured, if these err together
  /// on each lane: the mean over ranks.
  double doubt_ns = 0;
};

/// Op times of `other`: the same model on the same ranks, another schedule. Each op takes in each step what it
/// or its like took in that step on that rank. Throws ConfigError if nothing was measured that an op's time could be
/// taken from. Of `changes`: factors, hops and issue, and that a straggler, or a late rank, computes as the others do.
WhatIfTimes what_if_times(const MeasuredTimes& measured, const schedule::Training& other, const Changes& changes = {});

}  // namespace fsdpbench::clock
