#include "replay/forecast.h"

#include <utility>

#include "replay/replay.h"

namespace fsdpbench::replay {
namespace {

std::vector<trace::RankTrace> traces_of(int ranks) {
  std::vector<trace::RankTrace> traces(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) traces[static_cast<std::size_t>(rank)].rank = rank;
  return traces;
}

}  // namespace

Forecast forecast(const schedule::Training& training, const OpTimes& times, SteadyStep which, int recorded) {
  constexpr int kMostRepeats = 8;
  const auto replay = make_replay(training.schedules, training.plan.groups, times);
  // A step begins with idle lanes, so where ranks are alike the first of a kind is as long as all others of it.
  const bool one_more = which == SteadyStep::second || (which == SteadyStep::first && times.ranks_differ());
  const std::size_t before = training.schedules.steps.size() - (one_more ? 0 : 1);
  for (std::size_t step = 0; step < before; ++step) replay->step({});
  Forecast forecast;
  std::vector<double> last;
  for (int step = 0;
       step == 0 || (which == SteadyStep::repeated && step < kMostRepeats && (step < 2 || forecast.lengths_ns != last));
       ++step) {
    last = std::exchange(forecast.lengths_ns, {});
    forecast.traces = traces_of(recorded);
    replay->step(forecast.traces);
    const Replay::StepTimes& walked = replay->last_step();
    for (std::size_t rank = 0; rank < walked.end_ns.size(); ++rank) {
      forecast.lengths_ns.push_back(walked.end_ns[rank] - walked.begin_ns[rank]);
    }
  }
  return forecast;
}

std::vector<trace::RankTrace> forecast_run(const schedule::Training& training, const OpTimes& times,
                                           std::size_t first) {
  const auto replay = make_replay(training.schedules, training.plan.groups, times);
  std::vector<trace::RankTrace> traces = traces_of(training.plan.groups.ranks());
  for (std::size_t step = 0; step < times.given.size(); ++step) {
    replay->step(step < first ? std::span<trace::RankTrace>() : std::span(traces));
  }
  return traces;
}

}  // namespace fsdpbench::replay
