#include "metrics/typical_step.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "metrics/step_breakdown.h"
#include "replay/lower_median.h"
#include "replay/replay.h"

namespace fsdpbench::metrics {
namespace {

using replay::MeasuredTimes;
using Table = MeasuredTimes::Table;

replay::MeasuredTimes measure(const RunView& run, const Diagnosed& what) {
  const auto link = what.config.emulate.link();
  return {{run.schedules(), what.plan.groups, what.sizes},
          run.traces(),
          link ? std::optional(link->latency_seconds * 1e9) : std::nullopt,
          what.config.simulate.cluster.empty()};
}

/// kNone if there is none.
std::int64_t middle_of(std::vector<std::int64_t> values) {
  return values.empty() ? MeasuredTimes::kNone : replay::lower_median(std::move(values));
}

double middle_of(std::vector<double> values) { return values.empty() ? 0.0 : median(std::move(values)); }

/// Medians over draws, of the ranks that `own` names by themselves and of the others together.
/// `value(step, rank, op)`: negative if there is none.
using ValueOf = std::function<std::int64_t(std::size_t step, std::size_t rank, std::size_t op)>;
void add_medians(std::span<const std::size_t> steps, const std::vector<bool>& own, std::size_t op, const ValueOf& value,
                 Table& table) {
  std::vector<std::int64_t> common;
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    std::vector<std::int64_t> mine;
    for (const std::size_t step : steps) {
      if (const std::int64_t ns = value(step, rank, op); ns >= 0) (own[rank] ? mine : common).push_back(ns);
    }
    if (own[rank]) table[rank][op] = middle_of(std::move(mine));
  }
  const std::int64_t middle = middle_of(std::move(common));
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    if (!own[rank]) table[rank][op] = middle;
  }
}

/// Transfers of a step that have nothing beside them to hide behind (cause step_boundary).
bool at_an_end(const schedule::Op& op, int last_micro) {
  if (!op.is_collective() || op.unit > 1) return false;
  if (op.kind == schedule::OpKind::all_gather) return op.phase == schedule::Phase::forward && op.micro == 0;
  return op.micro == last_micro;
}

}  // namespace

TypicalStep::TypicalStep(const RunView& run, const Diagnosed& what, double noise_ms)
    : what_(what),
      measured_(measure(run, what)),
      own_work_(measured_.ranks(), true),
      own_issue_(measured_.ranks(), true),
      own_link_(measured_.ranks(), true) {
  const schedule::Schedule& steady = measured_.schedule_of(measured_.steps() - 1);
  schedules_ = {{steady}, run.schedules().event_count};
  for (std::size_t step = 0; step < measured_.steps(); ++step) {
    if (&measured_.schedule_of(step) == &steady) steps_.push_back(step);
  }
  const auto same = [&](std::size_t a, std::size_t b, std::size_t rank) {
    return std::ranges::equal(measured_.ns(a, rank), measured_.ns(b, rank)) &&
           std::ranges::equal(measured_.issue_ns(a, rank), measured_.issue_ns(b, rank));
  };
  for (std::size_t rank = 0; rank < measured_.ranks(); ++rank) {
    for (const std::size_t step : steps_) repeats_ = repeats_ && same(steps_.front(), step, rank);
  }
  host_ = replay::measured_host(run.schedules(), run.traces(), {});
  lags_ = replay::measured_lags(run.schedules(), run.traces(), host_);
  find_late(repeats_ ? 0 : noise_ms);
  find_lags(repeats_ ? 0 : noise_ms);
  std::vector<std::size_t> all(steps_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  times_.emplace(times_of(all));
}

void TypicalStep::find_late(double noise_ms) {
  const std::vector<schedule::Op>& ops = schedules_.steady().ops;
  RankTimes work, issue, transfers;
  for (const std::size_t step : steps_) {
    work.emplace_back(measured_.ranks());
    issue.emplace_back(measured_.ranks());
    transfers.emplace_back(measured_.ranks());
    for (std::size_t rank = 0; rank < measured_.ranks(); ++rank) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        issue.back()[rank].push_back(measured_.issue_ns(step, rank)[i]);
        if (!ops[i].has_work()) continue;
        (ops[i].is_collective() ? transfers : work).back()[rank].push_back(measured_.ns(step, rank)[i]);
      }
    }
  }
  const std::vector<Lateness> by_work = find_late_ranks(work, noise_ms);
  const std::vector<Lateness> by_issue = find_late_ranks(issue, noise_ms);
  const std::vector<Lateness> by_link = find_late_ranks(transfers, noise_ms);
  for (std::size_t rank = 0; rank < measured_.ranks(); ++rank) {
    LateRank late{static_cast<int>(rank), {}, {}, {}};
    if (by_work[rank].significant) late.work = by_work[rank];
    if (by_issue[rank].significant) late.issue = by_issue[rank];
    if (by_link[rank].significant) late.link = by_link[rank];
    if (late.work || late.issue || late.link) late_.push_back(late);
    if (repeats_) continue;
    own_work_[rank] = late.work.has_value();
    own_issue_[rank] = late.issue.has_value();
    own_link_[rank] = late.link.has_value();
  }
}

void TypicalStep::find_lags(double noise_ms) {
  typical_lag_ns_.resize(lags_.size());
  for (const Lane lane : kLanes) {
    const std::size_t l = index_of(lane);
    std::vector<double> all;
    for (const replay::LaneLags& mine : lags_) all.insert(all.end(), mine[l].begin(), mine[l].end());
    const double common = middle_of(all);
    for (std::size_t rank = 0; rank < lags_.size(); ++rank) {
      const std::vector<double>& mine = lags_[rank][l];
      const double own = middle_of(mine);
      const double a_step_ms =
          (own - common) * static_cast<double>(mine.size()) / static_cast<double>(measured_.steps()) / 1e6;
      const auto later = static_cast<int>(std::ranges::count_if(mine, [&](double lag) { return lag > common; }));
      const bool differs =
          repeats_ || (a_step_ms > noise_ms && binomial_tail(static_cast<int>(mine.size()), later, 0.5) <
                                                   kLateLevel / static_cast<double>(lags_.size()));
      typical_lag_ns_[rank][l] = std::max(0.0, std::nearbyint(differs && !mine.empty() ? own : common));
    }
  }
}

replay::MeasuredTimes TypicalStep::times_of(std::span<const std::size_t> drawn) const {
  const std::vector<schedule::Op>& ops = schedules_.steady().ops;
  std::vector<std::size_t> steps;
  for (const std::size_t index : drawn) steps.push_back(steps_[index]);
  Table ns(measured_.ranks(), std::vector<std::int64_t>(ops.size(), 0)), issue = ns;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::vector<bool>& own = ops[i].is_collective() ? own_link_ : own_work_;
    add_medians(
        steps, own, i, [&](auto step, auto rank, auto op) { return measured_.ns(step, rank)[op]; }, ns);
    add_medians(
        steps, own_issue_, i, [&](auto step, auto rank, auto op) { return measured_.issue_ns(step, rank)[op]; }, issue);
  }
  return measured_.with_step(training(), std::move(ns), std::move(issue));
}

ReplayedStep TypicalStep::replay(const replay::MeasuredTimes& times, const replay::Training& other,
                                 const Without& without) const {
  replay::Changes changes = without.changes;
  changes.straggler = without.late_rank;
  replay::OpTimes op_times = replay::what_if_times(times, other, changes).times;
  op_times.host = host_;
  op_times.host.start_ns = 1e6;  // a record that begins at 0 is one of an op that did not run
  op_times.delays.by_rank_ns = typical_lag_ns_;
  const std::vector<schedule::Op>& ops = other.schedules.steady().ops;
  if (without.host) {
    for (auto& mine : op_times.given_issue.front()) std::ranges::fill(mine, 0);
    op_times.host.launch_ns = 0;
  }
  if (without.lags) {
    op_times.delays.by_rank_ns.clear();
    op_times.host.gap_ns = op_times.host.wake_ns = 0;
  }
  if (without.sharing) op_times.given_share_links = false;
  int last_micro = 0;
  for (const schedule::Op& op : ops) last_micro = std::max(last_micro, op.micro);
  auto& given = op_times.given.front();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool nothing =
        (without.copies && classify(ops[i]) == OpClass::copy) || (without.ends && at_an_end(ops[i], last_micro));
    for (auto& mine : given) {
      if (nothing) mine[i] = 0;
    }
  }
  if (without.late_rank >= 0) {
    const auto late = static_cast<std::size_t>(without.late_rank);
    const auto as_others = [&](auto value, auto set) {
      std::vector<double> others;
      for (std::size_t rank = 0; rank < given.size(); ++rank) {
        if (rank != late) others.push_back(value(rank));
      }
      set(middle_of(std::move(others)));
    };
    for (std::size_t l = 0; l < kLaneCount; ++l) {
      auto& lags = op_times.delays.by_rank_ns;
      if (!lags.empty()) as_others([&](std::size_t r) { return lags[r][l]; }, [&](double ns) { lags[late][l] = ns; });
    }
    auto& issue = op_times.given_issue.front();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      as_others([&](std::size_t r) { return static_cast<double>(issue[r][i]); },
                [&](double ns) { issue[late][i] = static_cast<std::int64_t>(ns); });
      if (!ops[i].is_collective()) continue;
      // A transfer takes what it takes in the fastest of its groups.
      std::int64_t least = given.front()[i];
      for (const auto& mine : given) least = std::min(least, mine[i]);
      const plan::Members group = other.groups.members(ops[i].group(), without.late_rank);
      for (int m = 0; m < group.count; ++m) given[static_cast<std::size_t>(group[m])][i] = least;
    }
  }

  constexpr int kMostSteps = 8;  // until one is as long as the one before on every rank, so that all to come are
  const auto walk = replay::make_replay(other.schedules, other.groups, op_times);
  ReplayedStep result;
  std::vector<double> lengths, before;
  for (int step = 0; step < kMostSteps && (step < 2 || lengths != before); ++step) {
    result.traces.assign(given.size(), {});
    for (std::size_t rank = 0; rank < given.size(); ++rank) result.traces[rank].rank = static_cast<int>(rank);
    walk->step(result.traces);
    before = std::exchange(lengths, {});
    const replay::Replay::StepTimes& last = walk->last_step();
    for (std::size_t rank = 0; rank < last.end_ns.size(); ++rank) {
      lengths.push_back(last.end_ns[rank] - last.begin_ns[rank]);
    }
  }
  for (trace::RankTrace& trace : result.traces) {
    for (trace::Record& record : trace.records) record.step = 0;
  }
  result.slowest_ns = static_cast<std::int64_t>(*std::ranges::max_element(lengths));
  return result;
}

std::array<TypicalStep::LaneExcess, kLaneCount> TypicalStep::excess(std::size_t rank) const {
  std::array<LaneExcess, kLaneCount> result{};
  const std::vector<schedule::Op>& ops = schedules_.steady().ops;
  for (const std::size_t step : steps_) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].has_work()) continue;
      const std::int64_t beyond = measured_.ns(step, rank)[i] - times_->ns(0, rank)[i];
      result[index_of(ops[i].lane)].longer_ns += static_cast<double>(beyond) / static_cast<double>(steps_.size());
    }
  }
  for (std::size_t l = 0; l < kLaneCount; ++l) {
    for (const double lag : lags_[rank][l]) {
      result[l].later_ns += (lag - typical_lag_ns_[rank][l]) / static_cast<double>(measured_.steps());
    }
  }
  return result;
}

}  // namespace fsdpbench::metrics
