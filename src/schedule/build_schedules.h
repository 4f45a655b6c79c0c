#pragma once

#include <vector>

#include "plan/module_sizes.h"
#include "plan/plan.h"
#include "schedule/op.h"
#include "schedule/policy.h"

namespace fsdpbench::schedule {

/// The schedules of a run: step 0, and as many as it takes until a step leaves to the next what it found itself.
/// Pure function. `sizes` has one entry a module.
Schedules build_schedules(const plan::Plan& plan, const Policy& policy, const std::vector<plan::ModuleSizes>& sizes);

}  // namespace fsdpbench::schedule
