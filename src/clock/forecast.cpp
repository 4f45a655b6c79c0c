#include "clock/forecast.h"

#include "clock/replay.h"

namespace fsdpbench::clock {

Forecast forecast(const schedule::Training& training, const OpTimes& times, SteadyStep which, int recorded) {
  constexpr std::size_t kMostRepeats = 8;
  // A step begins with idle lanes, so where ranks are alike the first of a kind is as long as all others of it.
  const bool one_more = which == SteadyStep::first && times.ranks_differ();
  const std::size_t first = training.schedules.steps.size() - (one_more ? 0 : 1);
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
