#include "metrics/step_breakdown.h"

#include <fmt/format.h>

#include "base/error.h"
#include "metrics/intervals.h"

namespace fsdpbench::metrics {
namespace {

void check(bool holds, const trace::RankTrace& trace, std::size_t step, const std::string& identity) {
  if (holds) return;
  throw Error(fmt::format("rank {}, measured step {}: {} does not hold; these measurements must not be used",
                          trace.rank, step, identity),
              ExitCode::check_failed);
}

}  // namespace

OpClass classify(const schedule::Op& op) {
  using schedule::OpKind;
  switch (op.kind) {
    case OpKind::forward:
    case OpKind::recompute:
    case OpKind::backward:
    case OpKind::accumulate_gradients:
    case OpKind::gradient_norm:
    case OpKind::clip:
    case OpKind::optimizer: return OpClass::computation;
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_reduce:
    case OpKind::gather_norm: return OpClass::communication;
    case OpKind::load_batch:
    case OpKind::cast_replicated:
    case OpKind::cast_shard:
    case OpKind::copy_in:
    case OpKind::copy_out:
    case OpKind::keep_group_shard:
    case OpKind::reduce_cast:
    case OpKind::reduce_copy_in:
    case OpKind::finish_gradient: return OpClass::copy;
    case OpKind::release:
    case OpKind::reshard:
    case OpKind::post_backward:
    case OpKind::host_wait:
    case OpKind::host_sync: return OpClass::none;
  }
  return OpClass::none;
}

std::vector<StepBreakdown> break_down(const schedule::Schedules& schedules, const trace::RankTrace& trace) {
  std::vector<StepBreakdown> result;
  std::size_t next = 0;
  for (std::size_t step = 0; step < trace.steps.size(); ++step) {
    const trace::StepWindow& window = trace.steps[step];
    std::vector<Interval> computation, communication, copies;
    const std::int32_t number = next < trace.records.size() ? trace.records[next].step : 0;
    const schedule::Schedule& schedule = schedules.of_step(static_cast<std::size_t>(number));
    for (; next < trace.records.size() && trace.records[next].step == number; ++next) {
      const trace::Record& record = trace.records[next];
      const OpClass op_class = classify(schedule.ops[static_cast<std::size_t>(record.op)]);
      if (op_class == OpClass::none) continue;
      check(window.begin_ns <= record.begin_ns && record.begin_ns <= record.end_ns && record.end_ns <= window.end_ns,
            trace, step, fmt::format("op {} inside its step", record.op));
      auto& list = op_class == OpClass::computation     ? computation
                   : op_class == OpClass::communication ? communication
                                                        : copies;
      list.push_back({record.begin_ns, record.end_ns});
    }
    const IntervalSet comp = unite(std::move(computation));
    const IntervalSet comm = unite(std::move(communication));
    const IntervalSet both = unite(comp, comm);
    const IntervalSet all = unite(both, unite(std::move(copies)));

    StepBreakdown b;
    b.rank = trace.rank;
    b.step = window.end_ns - window.begin_ns;
    b.computation = length(comp);
    b.communication = length(comm);
    b.overlap = b.computation + b.communication - length(both);
    b.exposed_communication = length(subtract(comm, comp));
    b.exposed_copy = length(subtract(all, both));
    b.idle = length(subtract({{window.begin_ns, window.end_ns}}, all));
    check(b.overlap == length(intersect(comp, comm)), trace, step, "overlap = U(comp) + U(comm) - U(comp and comm)");
    check(b.computation + b.exposed_communication + b.exposed_copy + b.idle == b.step, trace, step,
          "compute + exposed communication + exposed copies + idle = step");
    result.push_back(b);
  }
  return result;
}

}  // namespace fsdpbench::metrics
