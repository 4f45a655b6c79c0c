#pragma once

#include <vector>

#include "config/calibration.h"
#include "config/run_config.h"
#include "plan/groups.h"
#include "replay/contention.h"

namespace fsdpbench::replay {

/// How much ops of `config` are slowed by those beside them, by a machine's measured matrix; empty if that is.
/// `groups`: of its plan; they must live on.
///
/// A module's computation is slowed as its matrix products are, weighted by FLOPs: by the cells of the nearest shape
/// and message (least sum of differences of logarithms) among those of the configuration's dtype and nccl.max_ctas, or
/// what comes nearest to these. Collectives that sum up are taken as reduce-scatters, all others as all-gathers; of
/// several at once the largest message counts. Ops without products, and what was measured to be faster beside others,
/// take what they take alone.
SlowdownOf measured_slowdown(const std::vector<config::CalibrationSlowdown>& measured, const config::RunConfig& config,
                             const plan::Groups& groups);

}  // namespace fsdpbench::replay
