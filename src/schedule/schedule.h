#pragma once

#include <vector>

#include "schedule/buffer.h"
#include "schedule/op.h"

namespace fsdpbench::schedule {

/// The complete ordered list of ops that one rank's host issues for one training step. Plain data; all ranks have
/// the same. After the last op the host waits for the device (it reads the loss): that is not in the list.
///
/// Events keep their last recording from one step to the next, so a wait that comes before its event's recording
/// refers to the step before; in the first step it does nothing.
struct Schedule {
  std::vector<Op> ops;
  std::vector<Buffer> buffers;  ///< persistent ones first, the same in every step
  bool operator==(const Schedule&) const = default;
};

/// Schedules of step 0, 1, … of a run; the last one repeats (the steady state).
struct Schedules {
  std::vector<Schedule> steps;
  int event_count = 0;  ///< event ids are below this, in all steps

  /// The schedule of step number `step`, counted from 0 over the whole run.
  const Schedule& of_step(std::size_t step) const { return steps[step < steps.size() ? step : steps.size() - 1]; }
  /// The one that repeats.
  const Schedule& steady() const { return steps.back(); }
};

}  // namespace fsdpbench::schedule
