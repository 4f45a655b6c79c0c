#include "tune/run_doubt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "account/statistics.h"
#include "clock/contention.h"
#include "clock/what_if_times.h"
#include "hardware/other_work.h"
#include "record/table.h"

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

std::optional<double> between_runs(const FinishedRun& run) {
  const World& world = run.trial.world;
  const account::RunMetrics& m = *run.trial.metrics;
  const double noise = noise_of(m, world.simulated());
  if (world.simulated()) return std::numbers::sqrt2 * noise;
  const double least = std::numbers::sqrt2 * std::max(noise, kLeastBetweenRuns);
  if (world.backend == "cpu" && !world.emulated_compute) return std::nullopt;
  return std::max(least, run.trial.fidelity ? run.trial.fidelity->over_pct() / 100 : 0);
}

/// Up to which ranks are not told apart, as for causes.
double noise_ms(const FinishedRun& run) {
  const account::RunMetrics& metrics = *run.trial.metrics;
  const double percent = std::max(100 * account::kPracticalThreshold, metrics.aa_noise_pct.value_or(0));
  return percent / 100 * metrics.step_ms.median;
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

bool one_fabric(const FinishedRun& run) {
  constexpr int kGpusOfANode = 8;
  if (run.setup.config.emulate.link_gb_per_s) return true;
  const std::vector<World::RankPlace>& places = run.trial.world.places;
  if (places.empty()) return run.setup.plan.groups.ranks() <= kGpusOfANode;
  return std::ranges::all_of(places, [&](const World::RankPlace& place) { return place.host == places.front().host; });
}

double beside_collectives(const FinishedRun& run, const schedule::Training& changed, const clock::Changes& changes,
                          double change) {
  if (run.trial.world.backend != "cuda") return 0;
  const account::RunView view(run.setup.schedules, run.traces);
  const account::TypicalStep contended(view, run.setup, noise_ms(run), one_fabric(run), clock::most_slowed_computation);
  const double now = contended.forecast(changed.steady(), changes).slowest_ns(),
               before = contended.forecast(contended.training()).slowest_ns();
  return now / before / (1 + change) - 1;
}

std::string why_disturbed(const FinishedRun& run) {
  const double share = disturbing_share(run.trial);
  if (share <= 0) return {};
  return fmt::format("{} was measured on a busy machine ({}): this answer holds for a machine that is as busy",
                     run.folder, taken_text(share));
}

std::string changed_since(const FinishedRun& run, const SimulatedMachine& machine) {
  const double was_ms = run.trial.metrics->step_ms.median, is_ms = machine.forecast(run.setup).slowest_ns() / 1e6;
  constexpr double kSame = 1e-3;
  if (std::abs(is_ms / was_ms - 1) < kSame) return {};
  return fmt::format(
      "a step of {} took {}, and takes {} as its configuration, cluster or calibration and this program are now: the "
      "answer is of these",
      run.folder, shown(was_ms, "ms"), shown(is_ms, "ms"));
}

MeasuredMachine::MeasuredMachine(const FinishedRun& run)
    : run_(run),
      view_(run.setup.schedules, run.traces),
      typical_(view_, run.setup, noise_ms(run), one_fabric(run)),
      doubt_(doubt_of(run, typical_.forecast(typical_.training()).slowest_ns() / 1e6)) {}

std::optional<double> MeasuredMachine::doubt(const schedule::Training& training, double gain) const {
  RunDoubt doubt = doubt_;
  const schedule::Training steady = training.steady();
  doubt.reach = clock::what_if_times(typical_.times(), steady).doubt_ns / typical_.forecast(steady).slowest_ns();
  const std::optional<double> whole = doubt.whole();
  if (!whole) return std::nullopt;
  return *whole + std::abs(beside_collectives(run_, training, {}, -gain));
}

std::vector<plan::ModuleSizes> MeasuredMachine::sizes(const config::RunConfig& config) const {
  return sizes_.of(config);
}

clock::Forecast MeasuredMachine::forecast(const schedule::Training& training, const clock::Changes& changes) const {
  return typical_.forecast(training.steady(), changes);
}

clock::LeastTimes MeasuredMachine::least_times(const schedule::Training& training) const {
  const clock::WhatIfTimes known = clock::what_if_times(typical_.times(), training.steady());
  const auto& by_rank = known.times.given.back();
  clock::StepCosts costs(training.schedules.steady().ops.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    std::int64_t least = by_rank.front()[i];
    for (const auto& mine : by_rank) least = std::min(least, mine[i]);
    costs[i].run_ns = static_cast<double>(least);
  }
  return {std::move(costs)};
}

}  // namespace fsdpbench::app
