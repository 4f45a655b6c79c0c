#pragma once

#include <cstdint>
#include <vector>

#include "replay/measured_times.h"

namespace fsdpbench::replay {

/// What the host would take to issue the ops of another schedule: what it took to issue the same op; where there was
/// none, the mean of its kind, and of all ops where its kind was never issued.
class IssueTimes {
 public:
  /// `from`: a schedule that was measured; `to`: the other one. Both must live on.
  IssueTimes(const schedule::Schedule& from, const schedule::Schedule& to);

  /// By op of `to`, in nanoseconds, for one rank in one measured step that had the schedule `from`; `more_ns` is added
  /// to each. 0 for host ops, which only wait.
  std::vector<std::int64_t> of(const MeasuredTimes& measured, std::size_t step, std::size_t rank, double more_ns) const;

 private:
  const schedule::Schedule& from_;
  const schedule::Schedule& to_;
  std::vector<int> same_;  // by op of to_: the same one of from_; -1: none
};

}  // namespace fsdpbench::replay
