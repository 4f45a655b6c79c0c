#include "foreign/contention.h"

#include <cmath>
#include <utility>

#include "engine/simulate.h"

namespace fsdpbench::foreign::corpus {

IntervalSet communicating(const schedule::Schedules& schedules, const trace::RankTrace& trace) {
  std::vector<Interval> busy;
  for (const trace::Record& record : trace.records) {
    const schedule::Schedule& schedule = schedules.of_step(static_cast<std::size_t>(record.step));
    if (schedule.ops[record.op].is_collective()) busy.push_back({record.begin_ns, record.end_ns});
  }
  return unite(std::move(busy));
}

clock::OpTimes slowed_beside(const engine::Setup& setup, clock::OpTimes times, double factor) {
  constexpr int kWalks = 5;
  const clock::StepCosts alone = times.steps.back();
  const schedule::Schedule& steady = setup.schedules.steady();
  for (int walk = 0; walk < kWalks; ++walk) {
    const engine::Measurement measured = engine::simulate(setup, times);
    const trace::RankTrace& trace = measured.traces.front();
    const IntervalSet busy = communicating(setup.schedules, trace);
    for (const trace::Record& record : trace.records) {
      const auto op = static_cast<std::size_t>(record.op);
      if (record.step != trace.records.back().step || steady.ops[op].module < 0 || record.end_ns <= record.begin_ns) {
        continue;
      }
      const double beside = static_cast<double>(length_within({record.begin_ns, record.end_ns}, busy)) /
                            static_cast<double>(record.end_ns - record.begin_ns);
      times.steps.back()[op].run_ns = std::nearbyint(alone[op].run_ns / (1 - beside * (1 - 1 / factor)));
    }
  }
  return times;
}

std::int64_t when_done(const Interval& time, const IntervalSet& beside, double factor, double share) {
  const auto slow = static_cast<double>(length_within(time, beside));
  const double all = static_cast<double>(time.end - time.begin) - slow + slow / factor;
  double left = all * share;
  std::int64_t at = time.begin;
  for (const Interval& part : intersect(IntervalSet{time}, beside)) {
    const auto free = static_cast<double>(part.begin - at);
    if (left <= free) break;
    left -= free;
    const double done = static_cast<double>(part.end - part.begin) / factor;
    if (left <= done) return part.begin + std::llround(left * factor);
    left -= done;
    at = part.end;
  }
  return at + std::llround(left);
}

}  // namespace fsdpbench::foreign::corpus
