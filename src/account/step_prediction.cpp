#include "account/step_prediction.h"

#include <algorithm>

#include "account/step_breakdown.h"
#include "clock/forecast.h"

namespace fsdpbench::account {

StepPrediction predict_step(const schedule::Training& training, clock::OpTimes times) {
  const schedule::Training steady = training.steady();
  const std::vector<schedule::Op>& ops = steady.schedules.steady().ops;
  times.steps.erase(times.steps.begin(), times.steps.end() - 1);
  StepPrediction prediction;
  for (std::size_t i = 0; i < times.steps.front().size(); ++i) {
    const clock::OpCost& cost = times.steps.front()[i];
    const OpClass op_class = classify(ops[i]);
    const auto ns = static_cast<std::int64_t>(cost.run_ns + cost.link_ns);
    if (op_class == OpClass::computation) prediction.computation += ns;
    if (op_class == OpClass::communication) prediction.communication += ns;
  }
  const clock::Forecast step = clock::forecast(steady, times, clock::SteadyStep::first, 1);
  prediction.step = prediction.update = static_cast<std::int64_t>(step.slowest_ns());
  for (const trace::Record& record : step.traces.front().records) {
    const schedule::Op& op = ops[static_cast<std::size_t>(record.op)];
    if (op.kind == schedule::OpKind::optimizer) prediction.update = std::min(prediction.update, record.begin_ns);
  }
  return prediction;
}

}  // namespace fsdpbench::account
