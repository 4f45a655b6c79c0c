#include "schedule/step_part.h"

namespace fsdpbench::schedule {

Schedule only(const Schedule& schedule, StepPart part) {
  Schedule left = schedule;
  if (part == StepPart::whole) return left;
  for (Op& op : left.ops) {
    if (!op.has_work() || op.is_collective() == (part == StepPart::communication)) continue;
    op.kind = OpKind::left_out;
    op.work = {};
  }
  return left;
}

}  // namespace fsdpbench::schedule
