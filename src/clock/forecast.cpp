#include "clock/forecast.h"

#include <algorithm>
#include <cmath>

#include "base/enum_table.h"
#include "base/student.h"
#include "clock/op_times.h"

namespace fsdpbench::clock {

std::string_view to_string(Reach reach) {
  constexpr EnumNames<Reach> kNames{"measured", "interpolated", "extrapolated"};
  return kNames[reach];
}

Reach least_sure(const ReachCounts& ops) {
  Reach least = Reach::measured;
  for (const Reach reach : kEnumerators<Reach>) {
    if (ops[reach] > 0) least = reach;
  }
  return least;
}

Bounds interval_around(double predicted, double walked, const std::vector<double>& draws, double miss) {
  const auto [least, greatest] = std::ranges::minmax(draws);
  const double middle = predicted + (least + greatest) / 2 - walked, half = std::hypot((greatest - least) / 2, miss);
  return {std::max(0.0, middle - half), middle + half};
}

double quantile_of_next(const std::vector<double>& ascending, int sources, double p) {
  const auto n = static_cast<double>(ascending.size());
  if (ascending.size() == 1) return ascending.front();
  const double rank = std::clamp(p * (n + 1) - 1, 0.0, n - 1);  // of the first value: 0
  const auto below = std::min(static_cast<std::size_t>(rank), ascending.size() - 2);
  const double part = rank - static_cast<double>(below);
  const double ranked = std::exp(std::lerp(std::log(ascending[below]), std::log(ascending[below + 1]), part));
  const double source_rank = p * (sources + 1);  // of the first source: 1
  const bool before = source_rank < 1;
  const bool behind = source_rank > sources;
  if (sources == 1 || !(before || behind)) return ranked;
  double mean = 0, squares = 0;
  for (const double value : ascending) mean += std::log(value) / n;
  for (const double value : ascending) squares += (std::log(value) - mean) * (std::log(value) - mean);
  const double reach =
      student_quantile(before ? p : 1 - p, sources - 1) * std::sqrt(squares / (n - 1) * (1 + 1.0 / sources));
  return before ? std::min(ranked, std::exp(mean - reach)) : std::max(ranked, std::exp(mean + reach));
}

double next_within(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return student_quantile(0.025, static_cast<int>(values.size())) *
         std::sqrt(squares / static_cast<double>(values.size()));
}

OpTimes drawn(OpTimes times, const Uncertainty& uncertainty, int draw) {
  const std::size_t number = draw;
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    for (std::size_t op = 0; op < times.steps[step].size(); ++op) {
      const int source = uncertainty.source[step][op];
      if (source < 0) continue;
      const double ratio = uncertainty.ratios[source][number];
      OpCost& cost = times.steps[step][op];
      cost.run_ns = std::nearbyint(cost.run_ns * ratio);
      cost.link_ns = std::nearbyint(cost.link_ns * ratio);
    }
  }
  if (!uncertainty.own_issue.empty()) {
    for (std::vector<double>& of_step : times.own_issue) {
      for (double& ns : of_step) ns = std::nearbyint(ns * uncertainty.own_issue[number]);
    }
  }
  if (uncertainty.host.empty()) return times;
  for (double HostCosts::*cost :
       {&HostCosts::issue_ns, &HostCosts::launch_ns, &HostCosts::gap_ns, &HostCosts::wake_ns}) {
    times.host.*cost = std::max(0.0, std::nearbyint(times.host.*cost + uncertainty.host[number].*cost));
  }
  return times;
}

Forecast forecast(const schedule::Training& training, const OpTimes& times, SteadyStep which, int recorded) {
  constexpr std::size_t kMostRepeats = 8;
  // A step begins with idle lanes, so where ranks are alike the first of a kind is as long as all others of it.
  const bool one_more = which == SteadyStep::first && times.ranks_differ();
  const std::size_t steady = std::max(training.schedules.steps.size(), times.own_issue.size());
  const std::size_t first = steady - (one_more ? 0 : 1);
  const std::size_t most = first + (which == SteadyStep::repeated ? kMostRepeats : 1);
  Forecast forecast;
  for (int rank = 0; rank < recorded; ++rank) forecast.traces.emplace_back().rank = rank;
  const auto go_on = [&](std::size_t step, const std::vector<double>& lengths_ns) {
    const bool repeats = step > first && lengths_ns == forecast.lengths_ns;
    forecast.lengths_ns = lengths_ns;
    if (repeats || step + 1 == most) return false;
    for (trace::RankTrace& trace : forecast.traces) trace.steps.clear(), trace.records.clear();
    return true;
  };
  forecast_run(training, times, most, first, forecast.traces, go_on);
  return forecast;
}

void forecast_run(const schedule::Training& training, const OpTimes& times, std::size_t steps, std::size_t first,
                  std::span<trace::RankTrace> traces, const AfterStep& after) {
  const auto replay = make_replay(training.schedules, training.plan.groups, times);
  std::vector<double> lengths_ns;
  for (std::size_t step = 0; step < steps; ++step) {
    replay->step(step < first ? std::span<trace::RankTrace>() : traces);
    if (!after) continue;
    const Replay::StepTimes& walked = replay->last_step();
    lengths_ns.clear();
    for (std::size_t rank = 0; rank < walked.end_ns.size(); ++rank) {
      lengths_ns.push_back(walked.end_ns[rank] - walked.begin_ns[rank]);
    }
    if (!after(step, lengths_ns)) return;
  }
}

}  // namespace fsdpbench::clock
