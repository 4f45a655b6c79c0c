#include "metrics/step_prediction.h"

#include <algorithm>

#include "metrics/step_breakdown.h"
#include "replay/make_replay.h"

namespace fsdpbench::metrics {

StepPrediction predict_step(const schedule::Training& training, replay::OpTimes times) {
  const schedule::Schedules steady{{training.schedules.steady()}, training.schedules.event_count};
  times.steps.erase(times.steps.begin(), times.steps.end() - 1);
  StepPrediction prediction;
  for (std::size_t i = 0; i < times.steps.front().size(); ++i) {
    const replay::OpCost& cost = times.steps.front()[i];
    const OpClass op_class = classify(steady.steady().ops[i]);
    const auto ns = static_cast<std::int64_t>(cost.run_ns + cost.link_ns);
    if (op_class == OpClass::computation) prediction.computation += ns;
    if (op_class == OpClass::communication) prediction.communication += ns;
  }
  const auto replay = replay::make_replay(steady, training.plan.groups, times);
  trace::RankTrace walked;
  replay->step({&walked, 1});
  prediction.step = prediction.update = static_cast<std::int64_t>(replay->last_step().end_ns.front());
  for (const trace::Record& record : walked.records) {
    const schedule::Op& op = steady.steady().ops[static_cast<std::size_t>(record.op)];
    if (op.kind == schedule::OpKind::optimizer) prediction.update = std::min(prediction.update, record.begin_ns);
  }
  return prediction;
}

}  // namespace fsdpbench::metrics
