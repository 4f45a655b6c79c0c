#include "app/experiment/steady_step.h"

#include <algorithm>
#include <vector>

#include "engine/simulate.h"
#include "metrics/run_view.h"
#include "metrics/step_breakdown.h"
#include "replay/make_replay.h"

namespace fsdpbench::app {

SteadyStep steady_step(const engine::Setup& setup, const replay::OpTimes& times) {
  const int ranks = setup.plan.groups.ranks();
  const bool all = times.ranks_differ() && ranks <= engine::kMostRecordedRanks;
  std::vector<trace::RankTrace> traces(all ? static_cast<std::size_t>(ranks) : 1);
  for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].rank = static_cast<int>(rank);
  const auto replay = replay::make_replay(setup.schedules, setup.plan.groups, times);
  for (std::size_t step = 0; step < setup.schedules.steps.size(); ++step) replay->step({});
  replay->step(traces);
  SteadyStep result;
  const replay::Replay::StepTimes& last = replay->last_step();
  for (std::size_t rank = 0; rank < last.end_ns.size(); ++rank) {
    result.ms = std::max(result.ms, (last.end_ns[rank] - last.begin_ns[rank]) * 1e-6);
  }
  const metrics::RunView run(setup.schedules, traces);
  for (int place = 0; place < run.ranks(); ++place) {
    const metrics::StepBreakdown parts = metrics::break_down(run.steps().front(), place);
    result.exposed_ms += static_cast<double>(parts.exposed_communication) * 1e-6 / run.ranks();
  }
  return result;
}

config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const metrics::RunMetrics& measured) {
  const SteadyStep says = steady_step(setup, engine::calibrated_times(setup, calibration).times);
  return {measured.step_ms.median / says.ms - 1, (measured.exposed_comm_ms - says.exposed_ms) / says.ms};
}

}  // namespace fsdpbench::app
