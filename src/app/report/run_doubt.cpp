#include "app/report/run_doubt.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdpbench::app {
namespace {

/// A run with too few steps to be halved is as doubtful as its steps differ. One step shows no difference, so this
/// fraction of it is assumed.
constexpr double kOfOneStep = 0.05;

double noise_of(const metrics::RunMetrics& m, bool simulated) {
  if (m.aa_noise_pct) return *m.aa_noise_pct / 100;
  if (m.step_ms.n > 1) return (m.step_ms.max - m.step_ms.min) / m.step_ms.median;
  return simulated ? 0 : kOfOneStep;
}

}  // namespace

double RunDoubt::whole() const { return std::hypot(replay, between_runs, reach); }

RunDoubt doubt_of(const FinishedRun& run, double replayed_ms) {
  const metrics::RunMetrics& m = *run.trial.metrics;
  const bool simulated = run.trial.world.simulated();
  RunDoubt doubt;
  doubt.replay = std::abs(replayed_ms / m.step_ms.median - 1);
  const double noise = noise_of(m, simulated);
  doubt.between_runs = std::numbers::sqrt2 * (simulated ? noise : std::max(noise, kLeastBetweenRuns));
  return doubt;
}

}  // namespace fsdpbench::app
