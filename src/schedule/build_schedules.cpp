#include "schedule/build_schedules.h"

#include "schedule/step_builder.h"
#include "schedule/step_walk.h"

namespace fsdpbench::schedule {

Schedules build_schedules(const plan::Plan& plan, const Policy& policy, const std::vector<plan::ModuleSizes>& sizes) {
  StepBuilder builder(plan, policy, sizes);
  StepWalk walk(builder);
  Schedules result;
  for (int step = 0; step < kMaxDistinctSteps; ++step) {
    walk.walk(step);
    Schedule schedule = builder.take_step();
    if (!result.steps.empty() && schedule == result.steps.back()) break;
    result.steps.push_back(std::move(schedule));
  }
  result.event_count = builder.event_count();
  return result;
}

}  // namespace fsdpbench::schedule
