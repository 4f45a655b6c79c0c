#include "runs/prediction_interval.h"

#include <algorithm>
#include <vector>

#include "engine/simulate.h"
#include "runs/steady_step.h"

namespace fsdpbench::app {
namespace {

/// How much longer a step may take whose memory is nearly full: T123 of profiles/published, the only dense training
/// there of which that is predicted (96 % of the GPU), took 1.25 times what other sources predict. One row, and no
/// quantile.
constexpr double kNearMemoryLimit = 1.25;

}  // namespace

PredictionInterval prediction_interval(const Cell& cell, const account::RunMetrics& predicted) {
  PredictionInterval result;
  result.from = cell.basis.from;
  if (!cell.basis.uncertainty) return result;
  result.ops = cell.basis.uncertainty->reach;
  result.leaves_ranks_out = cell.basis.uncertainty->leaves_ranks_out;
  clock::OpTimes times = cell.times;
  if (cell.setup.plan.groups.ranks() > engine::kMostRecordedRanks) {
    times.compute_factor.clear();
    times.link_factor.clear();
    times.delays = {};
  }
  const SteadyStep walked = steady_step(cell.setup, times);
  std::vector<double> steps, exposed;
  for (int draw = 0; draw < clock::Uncertainty::kDraws; ++draw) {
    const SteadyStep step = steady_step(cell.setup, clock::drawn(times, *cell.basis.uncertainty, draw));
    steps.push_back(step.ms);
    exposed.push_back(step.exposed_ms);
  }
  const clock::Uncertainty& uncertainty = *cell.basis.uncertainty;
  result.step_ms =
      clock::interval_around(predicted.step_ms.median, walked.ms, steps, uncertainty.step_miss * walked.ms);
  result.exposed_ms = clock::interval_around(predicted.exposed_comm_ms, walked.exposed_ms, exposed,
                                              uncertainty.exposed_miss * walked.ms);
  if (cell.near_memory_limit) result.step_ms->high *= kNearMemoryLimit;
  return result;
}

}  // namespace fsdpbench::app
