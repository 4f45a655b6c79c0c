#include "tune/measured_machine.h"

#include <algorithm>

#include "account/compare.h"
#include "clock/what_if_times.h"

namespace fsdpbench::app {
namespace {

/// Up to which ranks are not told apart, as for causes.
double noise_ms(const FinishedRun& run) {
  const account::RunMetrics& metrics = *run.trial.metrics;
  const double percent = std::max(100 * account::kPracticalThreshold, metrics.aa_noise_pct.value_or(0));
  return percent / 100 * metrics.step_ms.median;
}

}  // namespace

MeasuredMachine::MeasuredMachine(const FinishedRun& run)
    : view_(run.setup.schedules, run.traces), typical_(view_, run.setup, noise_ms(run)),
      doubt_(doubt_of(run, typical_.forecast(typical_.training()).slowest_ns() / 1e6)) {}

std::optional<double> MeasuredMachine::doubt(const schedule::Training& training) const {
  RunDoubt doubt = doubt_;
  const schedule::Training steady = training.steady();
  doubt.reach = clock::what_if_times(typical_.times(), steady).doubt_ns / typical_.forecast(steady).slowest_ns();
  return doubt.whole();
}

std::vector<plan::ModuleSizes> MeasuredMachine::sizes(const config::RunConfig& config) const {
  return sizes_.of(config);
}

clock::Forecast MeasuredMachine::forecast(const schedule::Training& training, const clock::Changes& changes) const {
  return typical_.forecast(training.steady(), changes);
}

clock::StepCosts MeasuredMachine::least_costs(const schedule::Training& training) const {
  const clock::WhatIfTimes known = clock::what_if_times(typical_.times(), training.steady());
  const auto& by_rank = known.times.given.back();
  clock::StepCosts costs(training.schedules.steady().ops.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    std::int64_t least = by_rank.front()[i];
    for (const auto& mine : by_rank) least = std::min(least, mine[i]);
    costs[i].run_ns = static_cast<double>(least);
  }
  return costs;
}

}  // namespace fsdpbench::app
