#include "replay/contention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/intervals.h"
#include "replay/make_replay.h"

namespace fsdpbench::replay {
namespace {

struct Run {
  Interval time;
  std::size_t op = 0;
};

/// Ops in order of their begins, which may overlap: those of a span are found without looking at all.
class Runs {
 public:
  void add(const Run& run) { runs_.push_back(run); }
  void finish() {
    std::ranges::sort(runs_, {}, [](const Run& run) { return std::pair(run.time.begin, run.op); });
    for (const Run& run : runs_)
      latest_end_.push_back(std::max(latest_end_.empty() ? 0 : latest_end_.back(), run.time.end));
  }
  /// Those that share some of `span`.
  void within(const Interval& span, std::vector<Run>& found) const {
    found.clear();
    const auto first = std::ranges::upper_bound(latest_end_, span.begin) - latest_end_.begin();
    for (auto run = runs_.begin() + first; run != runs_.end() && run->time.begin < span.end; ++run) {
      if (run->time.end > span.begin) found.push_back(*run);
    }
  }

 private:
  std::vector<Run> runs_;
  std::vector<std::int64_t> latest_end_;  // of the runs up to each
};

/// What of `run` it would take alone.
double part_alone(const schedule::Schedule& schedule, const Run& run, const std::vector<Run>& others,
                  const SlowdownOf& slowdown) {
  std::vector<std::int64_t> changes{run.time.begin, run.time.end};
  for (const Run& other : others) {
    changes.push_back(std::clamp(other.time.begin, run.time.begin, run.time.end));
    changes.push_back(std::clamp(other.time.end, run.time.begin, run.time.end));
  }
  std::ranges::sort(changes);
  std::vector<std::pair<double, std::int64_t>> slowed;  // by how much, for how long
  std::vector<std::size_t> beside;
  for (std::size_t c = 0; c + 1 < changes.size(); ++c) {
    if (changes[c] == changes[c + 1]) continue;
    beside.clear();
    for (const Run& other : others) {
      if (other.time.begin <= changes[c] && other.time.end >= changes[c + 1]) beside.push_back(other.op);
    }
    const double times = beside.empty() ? 1 : slowdown(schedule, run.op, beside);
    if (times <= 1) continue;
    const auto known = std::ranges::find(slowed, times, &std::pair<double, std::int64_t>::first);
    if (known == slowed.end()) {
      slowed.emplace_back(times, changes[c + 1] - changes[c]);
    } else {
      known->second += changes[c + 1] - changes[c];
    }
  }
  double part = 1;
  for (const auto& [times, ns] : slowed) {
    part -= static_cast<double>(ns) / static_cast<double>(run.time.end - run.time.begin) * (1 - 1 / times);
  }
  return part;
}

}  // namespace

std::vector<double> parts_alone(const schedule::Schedule& schedule, std::span<const trace::Record> records,
                                const SlowdownOf& slowdown) {
  std::vector<double> parts(schedule.ops.size(), 1.0);
  std::vector<Run> runs;
  Runs collectives, computations;
  for (const trace::Record& record : records) {
    const auto i = static_cast<std::size_t>(record.op);
    const schedule::Op& op = schedule.ops[i];
    if (!op.has_work() || record.begin_ns == 0) continue;
    const Run run{
        {op.is_collective() ? std::max(record.begin_ns, record.peers_arrived_ns) : record.begin_ns, record.end_ns}, i};
    if (run.time.end <= run.time.begin) continue;
    runs.push_back(run);
    if (op.is_collective()) collectives.add(run);
    if (!op.is_collective() && op.module >= 0) computations.add(run);
  }
  collectives.finish();
  computations.finish();
  std::vector<Run> others;
  for (const Run& run : runs) {
    (schedule.ops[run.op].is_collective() ? computations : collectives).within(run.time, others);
    if (!others.empty()) parts[run.op] = part_alone(schedule, run, others, slowdown);
  }
  return parts;
}

void add_contention(const schedule::Training& training, const SlowdownOf& slowdown, OpTimes& times) {
  const schedule::Schedules& schedules = training.schedules;
  constexpr int kMostWalks = 8;
  StepCosts& costs = times.steps.back();
  const StepCosts alone = costs;
  double last_step = 0;
  for (int walk = 0; walk < kMostWalks; ++walk) {
    const auto replay = make_replay(schedules, training.plan.groups, times);
    for (std::size_t step = 0; step < schedules.steps.size(); ++step) replay->step({});
    trace::RankTrace trace;
    replay->step({&trace, 1});
    const auto step = static_cast<double>(trace.steps.back().end_ns - trace.steps.back().begin_ns);
    if (std::abs(step - last_step) < 1e-3 * step) return;
    last_step = step;
    const std::vector<double> parts = parts_alone(schedules.steady(), trace.records, slowdown);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      costs[i].run_ns = std::nearbyint(alone[i].run_ns / parts[i]);
      costs[i].link_ns = std::nearbyint(alone[i].link_ns / parts[i]);
    }
  }
}

}  // namespace fsdpbench::replay
