#include "schedule/build_schedules.h"

#include "schedule/step_builder.h"
#include "schedule/step_walk.h"

namespace fsdpbench::schedule {

Schedules build_schedules(const plan::Plan& plan, const Policy& policy, const std::vector<plan::ModuleSizes>& sizes) {
  StepBuilder builder(plan, policy, sizes);
  StepWalk walk(builder);
  Schedules result;
  // This ends: the queue of fsdp1_queue is the only thing that can go on changing, and with one list of calls and frees
  // a step its length only rises, to its limit, or only falls.
  for (bool steady = false; !steady;) {
    const StepWalk::Carried found = walk.carried();
    walk.walk();
    result.steps.push_back(builder.take_step());
    steady = walk.carried() == found;
  }
  // Steps may look alike while the queue fills, but the last one only stands for itself and those after it.
  while (result.steps.size() > 1 && result.steps.back() == result.steps[result.steps.size() - 2]) {
    result.steps.pop_back();
  }
  result.event_count = builder.event_count();
  return result;
}

}  // namespace fsdpbench::schedule
