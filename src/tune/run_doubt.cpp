#include "tune/run_doubt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/student.h"
#include "hardware/other_work.h"

namespace fsdpbench::app {
namespace {

/// A run with too few steps to be halved is as doubtful as its steps differ. One step shows no difference, so this
/// fraction of it is assumed.
constexpr double kOfOneStep = 0.05;

double noise_of(const account::RunMetrics& m, bool simulated) {
  if (m.aa_noise_pct) return *m.aa_noise_pct / 100;
  if (m.step_ms.n > 1) return (m.step_ms.max - m.step_ms.min) / m.step_ms.median;
  return simulated ? 0 : kOfOneStep;
}

/// 95 of 100 differences of two runs, in shares, from `run` and its repeats: Student's interval of logarithms, because
/// what slows a run down multiplies its step.
double between_repeats(const FinishedRun& run) {
  std::vector<double> logs{std::log(run.trial.metrics->step_ms.median)};
  for (const double ms : run.repeats_ms) logs.push_back(std::log(ms));
  const auto n = static_cast<double>(logs.size());
  double mean = 0, squares = 0;
  for (const double value : logs) mean += value / n;
  for (const double value : logs) squares += (value - mean) * (value - mean);
  const int freedom = static_cast<int>(logs.size()) - 1;
  return std::expm1(student_quantile(0.025, freedom) * std::sqrt(2 * squares / freedom));
}

std::optional<double> between_runs(const FinishedRun& run) {
  const World& world = run.trial.world;
  const account::RunMetrics& m = *run.trial.metrics;
  const double noise = noise_of(m, world.simulated());
  if (world.simulated()) return std::numbers::sqrt2 * noise;
  const double least = std::numbers::sqrt2 * std::max(noise, kLeastBetweenRuns);
  if (!run.repeats_ms.empty()) return std::max(least, between_repeats(run));
  if (world.backend == "cpu" && !world.emulated_compute) return std::nullopt;
  return std::max(least, run.trial.fidelity ? run.trial.fidelity->over_pct() / 100 : 0);
}

}  // namespace

std::optional<double> RunDoubt::whole() const {
  if (!between_runs) return std::nullopt;
  return std::hypot(replay, *between_runs, reach);
}

RunDoubt doubt_of(const FinishedRun& run, double replayed_ms) {
  RunDoubt doubt;
  doubt.replay = std::abs(replayed_ms / run.trial.metrics->step_ms.median - 1);
  doubt.between_runs = between_runs(run);
  return doubt;
}

std::string why_disturbed(const FinishedRun& run) {
  const double share = disturbing_share(run.trial);
  if (share <= 0) return {};
  return fmt::format("{} was measured on a busy machine ({}): this answer holds for a machine that is as busy",
                     run.folder, taken_text(share));
}

}  // namespace fsdpbench::app
