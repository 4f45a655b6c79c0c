#include "account/typical_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "account/step_breakdown.h"
#include "base/student.h"
#include "clock/what_if_times.h"

namespace fsdpbench::account {

std::string_view name_of(const ToldStall& told) { return told.jitter ? "jitter" : to_string(told.stall.cause); }

TypicalStalls::Before TypicalStalls::computations(const StepRecords& step, int rank) {
  const std::vector<schedule::Op>& ops = step.schedule().ops;
  const std::vector<OpKey> keys = op_keys(step.schedule());
  Before computations;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (classify(ops[i]) == OpClass::computation) computations.emplace_back(step.of(rank)[i].begin_ns, keys[i]);
  }
  std::ranges::sort(computations);
  return computations;
}

std::optional<OpKey> TypicalStalls::ended_by(const Before& computations, const Stall& stall) {
  const auto next = std::ranges::lower_bound(computations, stall.time.end, {}, [](const auto& c) { return c.first; });
  return next == computations.end() ? std::nullopt : std::optional(next->second);
}

TypicalStalls::TypicalStalls(const StepRecords& typical, const plan::Groups& groups,
                             const std::optional<LinkModel>& link, bool prefetches_backward,
                             const EvenRows& even_rows) {
  for (int rank = 0; rank < typical.ranks(); ++rank) {
    auto& mine = ns_.emplace_back();
    const Before before = computations(typical, rank);
    for (const Stall& stall : find_stalls(typical, groups, link, prefetches_backward, rank, even_rows)) {
      mine[ended_by(before, stall)][static_cast<std::size_t>(stall.cause)] += stall.time.end - stall.time.begin;
    }
  }
}

std::vector<ToldStall> TypicalStalls::tell(const StepRecords& step, int rank, const std::vector<Stall>& stalls) const {
  auto left = ns_[ns_.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
  const Before before = computations(step, rank);
  std::vector<ToldStall> told;
  for (const Stall& stall : stalls) {
    std::int64_t& typical = left[ended_by(before, stall)][static_cast<std::size_t>(stall.cause)];
    const std::int64_t repeats = std::min(typical, stall.time.end - stall.time.begin);
    typical -= repeats;
    const std::int64_t until = stall.time.begin + repeats;
    if (repeats > 0) {
      told.push_back({stall, false});
      told.back().stall.time.end = until;
    }
    if (until < stall.time.end) {
      told.push_back({stall, true});
      told.back().stall.time.begin = until;
      told.back().stall.late_rank = -1;
    }
  }
  // A wait as long before the same computation in the typical step repeats, though for another cause there.
  std::vector<ToldStall> named;
  for (ToldStall& rest : told) {
    Interval& time = rest.stall.time;
    std::array<std::int64_t, kCauseCount>& typical = left[ended_by(before, rest.stall)];
    for (std::size_t cause = 0; rest.jitter && cause < kCauseCount; ++cause) {
      const std::int64_t repeats = std::min(typical[cause], time.end - time.begin);
      if (repeats <= 0) continue;
      typical[cause] -= repeats;
      named.push_back({rest.stall, false});
      named.back().stall.time.end = time.begin += repeats;
    }
    if (time.begin < time.end) named.push_back(rest);
  }
  return named;
}
namespace {

using clock::MeasuredTimes;
using Table = MeasuredTimes::Table;

clock::MeasuredTimes measure(const RunView& run, const schedule::Training& training, bool one_fabric,
                             const clock::SlowdownOf& slowdown) {
  const auto link = training.config.emulate.link();
  return {training,
          run.traces(),
          link ? std::optional(link->latency_seconds * 1e9) : std::nullopt,
          training.config.simulate.cluster.empty(),
          slowdown,
          one_fabric};
}

/// kNone if there is none.
std::int64_t middle_of(std::vector<std::int64_t> values) {
  return values.empty() ? MeasuredTimes::kNone : lower_median(std::move(values));
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

/// Whether each op with work has a time in one of the measured steps, on each rank.
bool every_op_was_timed(const RunView& run) {
  std::map<std::pair<const schedule::Schedule*, int>, std::vector<bool>> timed;
  for (const StepRecords& step : run.steps()) {
    const std::vector<schedule::Op>& ops = step.schedule().ops;
    for (int rank = 0; rank < run.ranks(); ++rank) {
      std::vector<bool>& mine = timed[{&step.schedule(), rank}];
      mine.resize(ops.size());
      for (std::size_t i = 0; i < ops.size(); ++i) {
        mine[i] = mine[i] || !ops[i].has_work() || step.of(rank)[i].begin_ns != 0;
      }
    }
  }
  return std::ranges::all_of(
      timed, [](const auto& entry) { return std::ranges::find(entry.second, false) == entry.second.end(); });
}

/// Least wait for peers of the ranks in view, in a step of median waiting, in milliseconds.
double waited_for_peers_ms(const RunView& run) {
  std::vector<double> by_step;
  for (const StepRecords& step : run.steps()) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < step.schedule().ops.size(); ++i) {
      if (!step.schedule().ops[i].is_collective()) continue;
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (int place = 0; place < step.ranks(); ++place) {
        const trace::Record& r = step.of(place)[i];
        least = std::min(least, std::max<std::int64_t>(0, r.peers_arrived_ns - r.begin_ns));
      }
      sum += least;
    }
    by_step.push_back(static_cast<double>(sum) / 1e6);
  }
  return middle_of(std::move(by_step));
}

/// Time of each rank's own link, by rank and op; kNone where that is not known.
Table own_links(const StepRecords& step) {
  Table links;
  for (int rank = 0; rank < step.ranks(); ++rank) {
    std::vector<std::int64_t>& mine = links.emplace_back();
    for (const trace::Record& r : step.of(rank)) mine.push_back(r.link_ns > 0 ? r.link_ns : MeasuredTimes::kNone);
  }
  return links;
}

/// Transfers of a step that have nothing beside them to hide behind (cause step_boundary).
bool at_an_end(const schedule::Op& op, int last_micro) {
  if (!op.is_collective() || op.unit > 1 || op.exchanges_parts()) return false;
  if (op.kind == schedule::OpKind::all_gather) return op.phase == schedule::Phase::forward && op.micro == 0;
  return op.micro == last_micro;
}

}  // namespace

std::string why_no_typical_step(const RunView& run, const plan::Groups& groups, double noise_ms) {
  if (!every_op_was_timed(run)) return "the records of an op are missing in every step";
  if (run.ranks() == groups.ranks()) return {};
  const double waited_ms = waited_for_peers_ms(run);
  if (waited_ms <= noise_ms) return {};
  return fmt::format(
      "the {} recorded ranks all waited {:.2f} ms a step for ranks that were not recorded, of which "
      "nobody knows why they came last (trace.ranks=0 records all {})",
      run.ranks(), waited_ms, groups.ranks());
}

TypicalStep::TypicalStep(const RunView& run, const schedule::Training& training, double noise_ms, bool one_fabric,
                         const clock::SlowdownOf& slowdown)
    : one_for_all_(run.ranks() < training.plan.groups.ranks()),
      slowdown_(slowdown),
      training_(training.steady()),
      measured_(measure(run, training, one_fabric, slowdown)),
      own_work_(measured_.ranks(), true),
      own_issue_(measured_.ranks(), true),
      own_link_(measured_.ranks(), true) {
  const schedule::Schedule& steady = measured_.schedule_of(measured_.steps() - 1);
  training_.schedules.steps = {steady};
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
  for (const StepRecords& step : run.steps()) link_ns_.push_back(own_links(step));
  host_ = clock::measured_host(run.schedules(), run.traces(), {}, clock::CoreWaits::left_out);
  starts_ = clock::measured_starts(run.schedules(), run.traces(), host_);
  if (repeats_) noise_ms = 0;
  find_late(noise_ms);
  typical_lag_ns_ = typical_of(&clock::LaneStarts::lag_ns, noise_ms);
  typical_core_wait_ns_ = typical_of(&clock::LaneStarts::core_wait_ns, noise_ms);
  times_.emplace(times_of(steps_));
  typical_link_ns_.assign(measured_.ranks(), std::vector<std::int64_t>(steady.ops.size(), MeasuredTimes::kNone));
  for (std::size_t i = 0; i < steady.ops.size(); ++i) {
    if (!steady.ops[i].is_collective()) continue;
    add_medians(
        steps_, own_link_, i, [&](auto step, auto rank, auto op) { return link_ns_[step][rank][op]; },
        typical_link_ns_);
  }
}

void TypicalStep::find_late(double noise_ms) {
  const std::vector<schedule::Op>& ops = training_.schedules.steady().ops;
  RankTimes work, issue, transfers;
  for (const std::size_t step : steps_) {
    work.emplace_back(measured_.ranks());
    issue.emplace_back(measured_.ranks());
    transfers.emplace_back(measured_.ranks());
    for (std::size_t rank = 0; rank < measured_.ranks(); ++rank) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        issue.back()[rank].push_back(measured_.issue_ns(step, rank)[i]);
        if (!ops[i].has_work()) continue;
        const std::int64_t link = link_ns_[step][rank][i];
        (ops[i].is_collective() ? transfers : work)
            .back()[rank]
            .push_back(link == MeasuredTimes::kNone ? measured_.ns(step, rank)[i] : link);
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

/// By rank: what all ranks have in common, unless a rank has more of it for certain.
TypicalStep::LaneTimes TypicalStep::typical_of(clock::LaneStarts::ByLane clock::LaneStarts::*part,
                                               double noise_ms) const {
  LaneTimes typical(starts_.size());
  for (const Lane lane : kLanes) {
    const std::size_t l = index_of(lane);
    std::vector<double> all;
    for (const clock::LaneStarts& starts : starts_) {
      const std::vector<double>& mine = (starts.*part)[l];
      all.insert(all.end(), mine.begin(), mine.end());
    }
    const double common = middle_of(all);
    for (std::size_t rank = 0; rank < starts_.size(); ++rank) {
      const std::vector<double>& mine = (starts_[rank].*part)[l];
      const double own = middle_of(mine);
      const double a_step_ms =
          (own - common) * static_cast<double>(mine.size()) / static_cast<double>(measured_.steps()) / 1e6;
      const auto later = static_cast<int>(std::ranges::count_if(mine, [&](double lag) { return lag > common; }));
      const bool differs =
          repeats_ || (a_step_ms > noise_ms && binomial_tail(static_cast<int>(mine.size()), later, 0.5) <
                                                   kLateLevel / static_cast<double>(starts_.size()));
      typical[rank][l] = std::max(0.0, std::nearbyint(differs && !mine.empty() ? own : common));
    }
  }
  return typical;
}

bool TypicalStep::knows_links() const {
  return std::ranges::any_of(typical_link_ns_, [](const auto& mine) {
    return std::ranges::any_of(mine, [](std::int64_t ns) { return ns != MeasuredTimes::kNone; });
  });
}

std::string TypicalStep::why_not_of_all() const {
  if (!one_for_all_) return {};
  for (std::size_t rank = 1; rank < measured_.ranks(); ++rank) {
    const bool alike = std::ranges::equal(times_->ns(0, rank), times_->ns(0, 0)) &&
                       std::ranges::equal(times_->issue_ns(0, rank), times_->issue_ns(0, 0)) &&
                       typical_lag_ns_[rank] == typical_lag_ns_[0] &&
                       typical_core_wait_ns_[rank] == typical_core_wait_ns_[0] &&
                       typical_link_ns_[rank] == typical_link_ns_[0];
    if (!alike) {
      return fmt::format(
          "the {} recorded ranks differ, so none can stand for those that were not recorded "
          "(trace.ranks=0 records all {})",
          measured_.ranks(), training_.plan.groups.ranks());
    }
  }
  return {};
}

/// Op times of the step that is typical of `steps`, each as often as it is named.
clock::MeasuredTimes TypicalStep::times_of(const std::vector<std::size_t>& steps) const {
  const std::vector<schedule::Op>& ops = training_.schedules.steady().ops;
  Table ns(measured_.ranks(), std::vector<std::int64_t>(ops.size())), issue = ns;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const std::vector<bool>& own = ops[i].is_collective() ? own_link_ : own_work_;
    add_medians(
        steps, own, i, [&](auto step, auto rank, auto op) { return measured_.ns(step, rank)[op]; }, ns);
    add_medians(
        steps, own_issue_, i, [&](auto step, auto rank, auto op) { return measured_.issue_ns(step, rank)[op]; }, issue);
  }
  return measured_.with_step(training_, std::move(ns), std::move(issue));
}

/// Negative: none.
const clock::MeasuredTimes& TypicalStep::drawn(int draw) const {
  if (draw < 0 || repeats_) return *times_;
  const std::lock_guard lock(drawing_);
  const auto known = drawn_.find(draw);
  if (known != drawn_.end()) return known->second;
  std::mt19937 random(12345);
  random.discard(static_cast<unsigned long long>(draw) * steps_.size());
  std::vector<std::size_t> drawn(steps_.size());
  for (std::size_t& step : drawn) step = steps_[random() % drawn.size()];
  return drawn_.emplace(draw, times_of(drawn)).first->second;
}

/// Times of the ops of `other`, lanes and host like those of the run.
clock::OpTimes TypicalStep::op_times(const schedule::Training& other, const clock::Changes& changes) const {
  using clock::Part;
  const std::set<Part>& without = changes.without;
  clock::OpTimes op_times = clock::what_if_times(drawn(changes.draw), other, changes).times;
  op_times.host = host_;
  op_times.host.start_ns = 1e6;  // a record that begins at 0 is one of an op that did not run
  op_times.delays.by_rank_ns.resize(typical_lag_ns_.size());
  for (std::size_t rank = 0; rank < typical_lag_ns_.size(); ++rank) {
    for (std::size_t l = 0; l < kLaneCount; ++l) {
      op_times.delays.by_rank_ns[rank][l] = (without.contains(Part::lane_lags) ? 0 : typical_lag_ns_[rank][l]) +
                                            (without.contains(Part::core_waits) ? 0 : typical_core_wait_ns_[rank][l]);
    }
  }
  if (one_for_all_) {
    op_times.given.front().resize(1);
    op_times.given_issue.front().resize(1);
    op_times.delays.by_rank_ns.resize(1);
  }
  const std::vector<schedule::Op>& ops = other.schedules.steady().ops;
  if (without.contains(Part::host)) {
    for (auto& mine : op_times.given_issue.front()) std::ranges::fill(mine, 0);
    op_times.host.launch_ns = 0;
  }
  if (without.contains(Part::lane_lags)) op_times.host.gap_ns = op_times.host.wake_ns = 0;
  if (without.contains(Part::link_sharing)) op_times.ops = clock::OpTimes::Ops::given;
  int last_micro = 0;
  for (const schedule::Op& op : ops) last_micro = std::max(last_micro, op.micro);
  auto& given = op_times.given.front();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const OpClass op_class = classify(ops[i]);
    const bool copies = ops[i].is_transfer() ? without.contains(Part::pcie) : without.contains(Part::copies);
    const Part exchange = ops[i].exchanges_rows() ? Part::expert_rows : Part::tensor_group;
    const bool nothing = (copies && op_class == OpClass::copy) ||
                         (without.contains(Part::host_update) && op_class == OpClass::host_update) ||
                         (ops[i].exchanges_parts() && without.contains(exchange)) ||
                         (without.contains(Part::step_ends) && at_an_end(ops[i], last_micro));
    for (auto& mine : given) {
      if (nothing) mine[i] = 0;
    }
  }
  if (changes.op_factor.size() == ops.size()) {
    for (auto& mine : given) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        mine[i] = std::llround(static_cast<double>(mine[i]) * changes.op_factor[i]);
      }
    }
  }
  if (changes.late_rank >= 0) {
    const auto late = static_cast<std::size_t>(changes.late_rank);
    const auto as_others = [&](auto value, auto set) {
      std::vector<double> others;
      for (std::size_t rank = 0; rank < given.size(); ++rank) {
        if (rank != late) others.push_back(value(rank));
      }
      set(middle_of(std::move(others)));
    };
    for (std::size_t l = 0; l < kLaneCount; ++l) {
      auto& lags = op_times.delays.by_rank_ns;
      as_others([&](std::size_t r) { return lags[r][l]; }, [&](double ns) { lags[late][l] = ns; });
    }
    auto& issue = op_times.given_issue.front();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      as_others([&](std::size_t r) { return static_cast<double>(issue[r][i]); },
                [&](double ns) { issue[late][i] = static_cast<std::int64_t>(ns); });
      if (!ops[i].is_collective()) continue;
      // A transfer takes what it takes in the fastest of its groups.
      std::int64_t least = given.front()[i];
      for (const auto& mine : given) least = std::min(least, mine[i]);
      const plan::Members group = other.plan.groups.members(ops[i].group(), changes.late_rank);
      for (int m = 0; m < group.count; ++m) given[group[m]][i] = least;
    }
  }

  if (changes.slow_link >= 0 && is_own(other)) mend_link(changes.slow_link, other, op_times);
  if (slowdown_) clock::add_contention(other, slowdown_, op_times);
  return op_times;
}

clock::Forecast TypicalStep::forecast(const schedule::Training& other, const clock::Changes& changes) const {
  return clock::forecast(other, op_times(other, changes), clock::SteadyStep::repeated);
}

clock::Forecast TypicalStep::forecast() const {
  const std::vector<schedule::Op>& ops = training_.schedules.steady().ops;
  const clock::OpTimes times = op_times(training_, {});
  clock::Forecast step =
      clock::forecast(training_, times, clock::SteadyStep::repeated, static_cast<int>(times.given.front().size()));
  for (trace::RankTrace& trace : step.traces) {
    const auto rank = static_cast<std::size_t>(trace.rank);
    for (trace::Record& record : trace.records) {
      record.step = 0;
      const auto i = static_cast<std::size_t>(record.op);
      if (!ops[i].has_work()) continue;
      record.core_wait_ns = static_cast<std::int64_t>(typical_core_wait_ns_[rank][index_of(ops[i].lane)]);
      if (typical_link_ns_[rank][i] != MeasuredTimes::kNone) record.link_ns = typical_link_ns_[rank][i];
    }
  }
  return step;
}

/// A transfer ends with its slowest link. Without that of `rank` it would end with the slowest of the others: what
/// bytes take shrinks as those links' times say, latency stays.
void TypicalStep::mend_link(int rank, const schedule::Training& other, clock::OpTimes& times) const {
  const std::vector<schedule::Op>& ops = other.schedules.steady().ops;
  auto& given = times.given.front();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].is_collective()) continue;
    const auto own = static_cast<double>(typical_link_ns_[rank][i]);
    const plan::Members group = other.plan.groups.members(ops[i].group(), rank);
    const double latency = times.steps.front()[i].run_ns;
    double others = latency;
    for (int m = 0; m < group.count; ++m) {
      if (group[m] != rank) others = std::max(others, static_cast<double>(typical_link_ns_[group[m]][i]));
    }
    if (own <= others) continue;
    const double share = (others - latency) / (own - latency);
    for (int m = 0; m < group.count; ++m) {
      std::int64_t& ns = given[group[m]][i];
      ns = std::llround(latency + std::max(0.0, static_cast<double>(ns) - latency) * share);
    }
  }
}

}  // namespace fsdpbench::account
