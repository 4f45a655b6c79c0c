#include "foreign/diff_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "account/cause.h"
#include "base/error.h"
#include "base/student.h"
#include "foreign/host_words.h"
#include "foreign/launch_order.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;

/// Cause and op.
using PartName = std::pair<std::string, std::string>;

/// Nanoseconds of all ranks together, by step.
using PartTimes = std::map<PartName, std::vector<std::int64_t>>;

struct DiffSide {
  std::size_t steps = 0, ranks = 0;
  PartTimes parts;
  std::vector<std::int64_t> whole;  ///< by step
};

constexpr const char* kComputes = "computation";

std::string row_label(const RankRows& rank, const HostWords& words, std::int32_t row) {
  const std::string& name = rank.names[rank.device[row].name];
  const auto phase = phase_of_row(rank, words, row);
  return phase ? fmt::format("{}, {}", name, to_string(*phase)) : name;
}

/// Name of a collective: by its place in the schedule where both jobs have the same units.
std::string collective_label(const UnitTable& table, const CollectiveUse& use) {
  std::string label(to_string(use.kind));
  if (use.unit >= 0) {
    const int place = plan_unit(table, use.unit);
    label += place == 0 ? " root" : " " + std::to_string(place - 1);
  }
  return fmt::format("{}, {}", label, to_string(use.phase));
}

class SideReader {
 public:
  SideReader(const ReadJob& side, bool by_units) : side_(side), by_units_(by_units) {
    out_.ranks = side.job.ranks.size();
    out_.steps = side.explained.ranks.empty() ? 0 : side.explained.ranks.front().steps.size();
    for (const ExplainedRank& rank : side.explained.ranks) out_.steps = std::min(out_.steps, rank.steps.size());
    out_.whole.assign(out_.steps, 0);
  }

  DiffSide read() {
    for (std::size_t rank = 0; rank < out_.ranks; ++rank) {
      const HostWords words(side_.job.ranks[rank]);
      for (std::size_t step = 0; step < out_.steps; ++step) add_step(rank, step, words);
    }
    return std::move(out_);
  }

 private:
  void add(std::string cause, std::string op, std::size_t step, std::int64_t ns) {
    std::vector<std::int64_t>& times = out_.parts[{std::move(cause), std::move(op)}];
    times.resize(out_.steps, 0);
    times[step] += ns;
  }

  void add_step(std::size_t r, std::size_t s, const HostWords& words) {
    const RankRows& rank = side_.job.ranks[r];
    const RecognisedRank& found = side_.found.ranks[r];
    const JobStep& step = found.cut.steps[s];
    const ExplainedStep& explained = side_.explained.ranks[r].steps[s];
    std::map<std::int32_t, const CollectiveUse*> uses;
    for (const CollectiveUse& use : found.uses[s]) uses[use.row] = &use;
    const auto label = [&](std::int32_t row) {
      if (row < 0) return std::string();
      const auto use = uses.find(row);
      if (use == uses.end() || !by_units_) return row_label(rank, words, row);
      return collective_label(side_.found.table, *use->second);
    };
    // Where rows overlap, the one that began first has the time.
    std::int64_t until = step.window.begin, computed = 0;
    for (const std::int32_t row : step.running) {
      const DeviceRow& device = rank.device[row];
      if (device.kind != Activity::computation) continue;
      const std::int64_t begin = std::max(device.begin_ns, until), end = std::min(device.end_ns, step.window.end);
      if (end <= begin) continue;
      add(kComputes, label(row), s, end - begin);
      computed += end - begin;
      until = end;
    }
    std::int64_t stalled = 0;
    for (const account::Stall& stall : explained.stalls) {
      const std::int64_t ns = stall.time.end - stall.time.begin;
      add(std::string(to_string(stall.cause)), label(stall.op), s, ns);
      stalled += ns;
    }
    if (computed + stalled != explained.parts.step) {
      throw Error(fmt::format("rank {}, step {}: its parts are {} ns, and it took {}", rank.rank, explained.number,
                              computed + stalled, explained.parts.step),
                  ExitCode::check_failed);
    }
    out_.whole[s] += explained.parts.step;
  }

  const ReadJob& side_;
  bool by_units_;
  DiffSide out_;
};

struct Moments {
  double mean_ms = 0, variance = 0;  // of the mean
};

Moments moments_of(const std::vector<std::int64_t>& times, std::size_t ranks) {
  const auto n = static_cast<double>(times.size());
  double sum = 0, squares = 0;
  for (const std::int64_t ns : times) sum += static_cast<double>(ns);
  const double mean = sum / n;
  for (const std::int64_t ns : times) squares += (static_cast<double>(ns) - mean) * (static_cast<double>(ns) - mean);
  const double to_ms = 1e-6 / static_cast<double>(ranks);
  return {mean * to_ms, times.size() > 1 ? squares / (n - 1) / n * to_ms * to_ms : 0};
}

std::int64_t sum_of(const std::vector<std::int64_t>& times) {
  std::int64_t sum = 0;
  for (const std::int64_t ns : times) sum += ns;
  return sum;
}

class Comparer {
 public:
  Comparer(const DiffSide& a, const DiffSide& b) : a_(a), b_(b), step_ms_(moments_of(a.whole, a.ranks).mean_ms) {}

  /// All but the nanoseconds. `tried`: how many parts are compared beside this one.
  PartChange compare(const PartName& name, const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b,
                     std::size_t tried) const {
    constexpr double kLevel = 0.05, kFoundLevel = 0.01;
    const Moments of_a = moments_of(a, a_.ranks), of_b = moments_of(b, b_.ranks);
    PartChange change{name.first, name.second, of_a.mean_ms, of_b.mean_ms, 0, {}, {}, false};
    const double by = of_b.mean_ms - of_a.mean_ms;
    if (a.size() < 2 || b.size() < 2) {
      change.found = std::abs(by) >= kLeastChangeOfOne * step_ms_;
      return change;
    }
    const double variance = of_a.variance + of_b.variance, error = std::sqrt(variance);
    int freedom = 1;
    if (variance > 0) {
      const double parts = of_a.variance * of_a.variance / static_cast<double>(a.size() - 1) +
                           of_b.variance * of_b.variance / static_cast<double>(b.size() - 1);
      freedom = std::max(1, static_cast<int>(variance * variance / parts));
    }
    const double half = variance > 0 ? student_quantile(kLevel / 2, freedom) * error : 0;
    change.low_ms = by - half;
    change.high_ms = by + half;
    const double level = kFoundLevel / static_cast<double>(std::max<std::size_t>(tried, 1));
    const double needed = variance > 0 ? student_quantile(level / 2, freedom) * error : 0;
    change.found = std::abs(by) > needed && std::abs(by) >= kLeastChange * step_ms_;
    return change;
  }

  /// Rounds what all changes before and with this one sum up to, so that the rounded ones add up, too.
  std::int64_t next_ns(std::int64_t sum_a, std::int64_t sum_b) {
    total_a_ += sum_a;
    total_b_ += sum_b;
    const std::int64_t until = mean_ns(b_, total_b_) - mean_ns(a_, total_a_);
    return until - std::exchange(told_ns_, until);
  }

  std::int64_t step_ns() const { return mean_ns(b_, sum_of(b_.whole)) - mean_ns(a_, sum_of(a_.whole)); }

 private:
  static std::int64_t mean_ns(const DiffSide& side, std::int64_t sum) {
    const auto times = static_cast<std::int64_t>(side.steps * side.ranks);
    return (2 * sum + times) / (2 * times);
  }

  const DiffSide& a_;
  const DiffSide& b_;
  double step_ms_;
  std::int64_t total_a_ = 0, total_b_ = 0, told_ns_ = 0;
};

void largest_first(std::vector<PartChange>& changes) {
  std::ranges::stable_sort(changes, std::greater<>(), [](const PartChange& c) { return std::abs(c.change_ns); });
}

}  // namespace

JobDiff diff_jobs(const ReadJob& a, const ReadJob& b) {
  JobDiff diff;
  const UnitTable &units_a = a.found.table, &units_b = b.found.table;
  diff.by_units = !units_a.units.empty() && units_a.units.size() == units_b.units.size() &&
                  (units_a.root < 0) == (units_b.root < 0);
  const DiffSide side_a = SideReader(a, diff.by_units).read(), side_b = SideReader(b, diff.by_units).read();
  if (side_a.steps == 0 || side_b.steps == 0) {
    throw ConfigError(
        fmt::format("{} has no step with work of a device that all its ranks have.", side_a.steps == 0 ? "A" : "B"));
  }
  diff.steps_a = static_cast<int>(side_a.steps);
  diff.steps_b = static_cast<int>(side_b.steps);
  Comparer comparer(side_a, side_b);
  diff.step = comparer.compare({"step", ""}, side_a.whole, side_b.whole, 1);
  diff.step.change_ns = comparer.step_ns();
  std::map<PartName, std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> parts, causes;
  const auto collect = [&](const DiffSide& side, bool first) {
    for (const auto& [name, times] : side.parts) {
      for (const bool all_ops : {false, true}) {
        auto& both = all_ops ? causes[{name.first, ""}] : parts[name];
        both.first.resize(side_a.steps, 0);
        both.second.resize(side_b.steps, 0);
        std::vector<std::int64_t>& sums = first ? both.first : both.second;
        for (std::size_t step = 0; step < times.size(); ++step) sums[step] += times[step];
      }
    }
  };
  collect(side_a, true);
  collect(side_b, false);
  std::map<std::string, std::int64_t> ns_of_cause;
  for (const auto& [name, both] : parts) {
    PartChange& change = diff.ops.emplace_back(comparer.compare(name, both.first, both.second, parts.size()));
    change.change_ns = comparer.next_ns(sum_of(both.first), sum_of(both.second));
    ns_of_cause[name.first] += change.change_ns;
  }
  for (const auto& [name, both] : causes) {
    PartChange& change = diff.causes.emplace_back(comparer.compare(name, both.first, both.second, causes.size()));
    change.change_ns = ns_of_cause[name.first];
  }
  largest_first(diff.causes);
  largest_first(diff.ops);
  if (side_a.ranks != side_b.ranks) {
    diff.notes.push_back(fmt::format("A has files of {} ranks and B of {}.", side_a.ranks, side_b.ranks));
  }
  if (a.found.kind != b.found.kind) {
    diff.notes.push_back(fmt::format("A is {}, and B is {}.", a.found.name, b.found.name));
  }
  if (side_a.steps < 2 || side_b.steps < 2) {
    diff.notes.push_back(
        fmt::format("{} has one step only: no interval can be had, and a change counts from {:.0f} % of the step on.",
                    side_a.steps < 2 ? "A" : "B", 100 * kLeastChangeOfOne));
  }
  return diff;
}

}  // namespace fsdpbench::foreign
