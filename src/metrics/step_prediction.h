#pragma once

#include <cstdint>
#include <vector>

#include "plan/module_sizes.h"
#include "replay/emulated_times.h"
#include "schedule/schedule.h"

namespace fsdpbench::metrics {

/// A step without a machine, in nanoseconds.
struct StepPrediction {
  std::int64_t step = 0;           ///< on the computed clock
  std::int64_t computation = 0;    ///< sum over the compute lane
  std::int64_t communication = 0;  ///< sum over all collectives of a rank, each as if alone on the link
  /// Something runs at any time, and it is either a computation or a collective.
  std::int64_t exposed_communication() const { return step - computation; }
};

/// The steady step with replay::emulated_times(). What it does not know: ranks that differ, the time of copies,
/// optimizer and host. `sizes`: of each module, for one microbatch.
StepPrediction predict_step(const schedule::Schedules& schedules, const std::vector<plan::ModuleSizes>& sizes,
                            const plan::Groups& groups, const replay::Rates& rates);

}  // namespace fsdpbench::metrics
