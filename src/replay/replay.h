#pragma once

#include <span>
#include <vector>

#include "trace/record.h"

namespace fsdpbench::replay {

/// A run on a computed clock: the same schedules that an executor issues, walked for all ranks with given times.
/// Nothing sleeps and nothing is random: the same arguments give the same nanoseconds.
///
/// An op begins when its lane is free, the host has issued it, what it waits for is over, and, for a collective, its
/// communicator is free; its transfer when the last rank of its group has come so far. Lanes and communicators are
/// first come, first served in the order of issue. A step of a rank ends when all its lanes are idle; then the rank's
/// host begins with the next one, whatever the others do.
class Replay {
 public:
  virtual ~Replay() = default;

  /// Walks the next step of all ranks. `recorded`: the ranks (`rank` says which) whose step is appended to their
  /// records and windows, as an executor would have written them.
  virtual void step(std::span<trace::RankTrace> recorded) = 0;

  /// Of the last step, in whole nanoseconds from the beginning of the run. By rank; one entry for all if no two ranks
  /// may differ.
  struct StepTimes {
    std::vector<double> begin_ns;
    std::vector<double> end_ns;
  };
  virtual const StepTimes& last_step() const = 0;
};

}  // namespace fsdpbench::replay
