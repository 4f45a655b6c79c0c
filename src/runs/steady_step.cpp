#include "runs/steady_step.h"

#include "account/run_view.h"
#include "account/step_breakdown.h"
#include "clock/forecast.h"
#include "engine/simulate.h"

namespace fsdpbench::app {

SteadyStep steady_step(const engine::Setup& setup, const clock::OpTimes& times) {
  const int ranks = setup.plan.groups.ranks();
  const bool all = times.ranks_differ() && ranks <= engine::kMostRecordedRanks;
  const clock::Forecast step = clock::forecast(setup, times, clock::SteadyStep::first, all ? ranks : 1);
  SteadyStep result;
  result.ms = step.slowest_ns() * 1e-6;
  const account::RunView run(setup.schedules, step.traces);
  for (int place = 0; place < run.ranks(); ++place) {
    const account::StepBreakdown parts = account::break_down(run.steps().front(), place);
    result.exposed_ms += static_cast<double>(parts.exposed_communication) * 1e-6 / run.ranks();
  }
  return result;
}

config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const account::RunMetrics& measured) {
  const SteadyStep says = steady_step(setup, engine::calibrated_times(setup, calibration).times);
  return {measured.step_ms.median / says.ms - 1, (measured.exposed_comm_ms - says.exposed_ms) / says.ms};
}

}  // namespace fsdpbench::app
