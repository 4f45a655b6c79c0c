#pragma once

#include <vector>

#include "clock/compute_cost.h"
#include "config/cluster.h"
#include "plan/module_work.h"
#include "schedule/training.h"

namespace fsdpbench::clock {

struct OpTimes;

/// Time in which the host of the training's engine issues each op, as OpTimes::own_issue. `times`: what the ops take on
/// the GPU: it begins with the first kernels of a pass while the host issues the others, so what the host takes beyond
/// the GPU's time comes before the op, the rest after it. `work`: by module.
std::vector<std::vector<double>> host_issue(const schedule::Training& training, const config::Cluster& cluster,
                                            const std::vector<plan::ModuleWork>& work, const ComputeCost& compute,
                                            const OpTimes& times);

}  // namespace fsdpbench::clock
