#include "engine/op_ranges.h"

#include "schedule/print_schedule.h"

namespace fsdpbench::engine {

OpRanges::OpRanges(const plan::Plan& plan, const schedule::Schedules& schedules) {
  if (!trace::nvtx_listens()) return;
  for (const schedule::Schedule& schedule : schedules.steps) {
    for (const schedule::Op& op : schedule.ops) {
      std::int64_t bytes = op.is_collective() ? op.collective()->bytes() : 0;
      if (!op.is_collective()) {
        for (schedule::BufferId id : op.operands().writes)
          bytes += schedule.buffers[static_cast<std::size_t>(id)].bytes;
      }
      names_.try_emplace(&op, Label{trace::NvtxName(schedule::op_name(plan, op)), bytes});
    }
  }
}

void OpRanges::push_to_lane(backend::Device& device, const schedule::Op& op, std::int64_t step) const {
  device.enqueue(
      op.lane, "range begin",
      [label = &names_.at(&op), &op, step](backend::Kernels&) {
        trace::nvtx_push(label->name, trace::nvtx_category(op.lane), {op.unit, step, label->bytes});
      },
      nullptr);
}

void OpRanges::pop_from_lane(backend::Device& device, Lane lane) const {
  device.enqueue(
      lane, "range end", [](backend::Kernels&) { trace::nvtx_pop(); }, nullptr);
}

void OpRanges::begin_on_host(const schedule::Op& op, std::int64_t step) const {
  if (names_.empty()) return;
  const Label& label = names_.at(&op);
  trace::nvtx_push(label.name, trace::kNvtxHostCategory, {op.unit, step, label.bytes});
}

void OpRanges::end_on_host() const {
  if (!names_.empty()) trace::nvtx_pop();
}

}  // namespace fsdpbench::engine
