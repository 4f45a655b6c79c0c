#include "metrics/step_prediction.h"

#include "base/duration.h"
#include "metrics/step_breakdown.h"

namespace fsdpbench::metrics {
namespace {

using schedule::OpKind;

double flops(const schedule::Op& op, const std::vector<plan::ModuleSizes>& sizes) {
  if (op.module < 0) return 0;
  const plan::ModuleSizes& module = sizes[static_cast<std::size_t>(op.module)];
  switch (op.kind) {
    case OpKind::forward: return module.forward_flops;
    case OpKind::recompute: return module.recompute_flops;
    case OpKind::backward: return module.backward_flops;
    default: return 0;
  }
}

double collective_seconds(const schedule::Op& op, int ranks, const LinkModel& link) {
  const double bytes = static_cast<double>(op.collective()->bytes());
  const bool all_reduce = op.kind == OpKind::all_reduce;
  const double hops = (all_reduce ? 2 : 1) * (ranks - 1);
  const double sent = all_reduce ? bytes * hops / ranks : bytes * hops;  // of the whole, or of one rank's part
  return hops * link.latency_seconds + sent / link.bytes_per_second;
}

}  // namespace

replay::OpDurations modelled_durations(const schedule::Schedule& schedule, const std::vector<plan::ModuleSizes>& sizes,
                                       const plan::Groups& groups, const ModelledRates& rates) {
  replay::OpDurations durations;
  for (const schedule::Op& op : schedule.ops) {
    const double seconds = op.is_collective() ? collective_seconds(op, groups.size(op.group()), rates.link)
                                              : flops(op, sizes) / rates.flops_per_second;
    durations.push_back(whole_ns(seconds * 1e9));
  }
  return durations;
}

bool too_long(const replay::OpDurations& durations) {
  double sum = 0;
  for (const std::int64_t duration : durations) sum += static_cast<double>(duration);
  return sum > static_cast<double>(kLongestStep_ns);
}

StepPrediction predict_step(const schedule::Schedule& schedule, int event_count,
                            const std::vector<plan::ModuleSizes>& sizes, const plan::Groups& groups,
                            const ModelledRates& rates) {
  const replay::OpDurations durations = modelled_durations(schedule, sizes, groups, rates);
  StepPrediction prediction;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const OpClass op_class = classify(schedule.ops[i]);
    if (op_class == OpClass::computation) prediction.computation += durations[i];
    if (op_class == OpClass::communication) prediction.communication += durations[i];
  }
  prediction.step = replay::max_plus_bound(schedule, event_count, plan::Groups{}, {durations});
  return prediction;
}

}  // namespace fsdpbench::metrics
