#include "clock/what_if_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "base/lane.h"
#include "base/student.h"
#include "clock/compute_cost.h"

namespace fsdpbench::clock {
namespace {

using schedule::Op;
using schedule::OpKind;

/// The group that a collective runs in: a second communicator of the same ranks is no other link.
plan::Group ranks_of(const Op& op) {
  switch (op.group()) {
    case plan::Group::shard_separate: return plan::Group::shard;
    case plan::Group::expert_shard_separate: return plan::Group::expert_shard;
    default: return op.group();
  }
}

/// Collectives with equal Links have the same links. Where one fabric joins all ranks, that is said by the group. Where
/// there are several, as in nodes and between them, it is said by how many ranks meet and how far apart they are.
struct Links {
  plan::Group group = plan::Group::none;
  int ranks = 0, apart = 0;
  auto operator<=>(const Links&) const = default;
};

/// Measured ops that an op's time is taken from, and how.
struct Source {
  std::vector<int> ops;   ///< their mean on the same rank in the same step; empty: `fixed_ns`
  double factor = 1;      ///< of that
  double ns = 0;          ///< without ops
  double latency_ns = 0;  ///< of a collective: part of it that no bandwidth shortens
  double hops = 0;
  TimeOrigin origin = TimeOrigin::measured;
  Reach reach = Reach::measured;
  double doubt = 0;  ///< 95 of 100 such times lie within so much of it, as a share
};

/// [Note: times that nobody measured]
/// A fit is off for a size between measured ones by as much as its own ops are off the line. For the rest there is
/// no measure in a run, so it is assumed: another op of the same module is off by 5 %, another kind of op that moves
/// the same sort of amount by 20 %, and each factor of e between a size and the nearest measured one adds 5 %.
/// tests/end_to_end/what_if_campaign.py shows what this is worth.
constexpr double kOtherOp = 0.05, kOtherKind = 0.2, kOtherSize = 0.05;

/// The measured ops of one step, by what they do.
class Library {
 public:
  Library(const MeasuredTimes& measured, const schedule::Schedule& schedule)
      : measured_(measured), schedule_(schedule) {
    std::map<Exact, int> seen;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const Op& op = schedule.ops[i];
      if (!op.has_work()) continue;
      const auto index = static_cast<int>(i);
      const OpWork work = work_of(op, schedule, measured.run().plan.groups, measured.run().sizes);
      const Links links = links_of(op, measured.run());
      Exact exact = exact_of(op, work, links);
      std::get<3>(exact) = seen[exact]++;
      exact_.emplace(exact, index);
      like_[like_of(op, work, links, true)].push_back(index);
      like_[like_of(op, work, links, false)].push_back(index);
      by_kind_[{work.unit, op.kind, links}].push_back(index);
      by_links_[{work.unit, links}].push_back(index);
      by_unit_[work.unit].push_back(index);
      if (work.unit == OpWork::Unit::flops) by_module_[{op.kind, op.module}].push_back(index);
    }
  }

  /// By op of a schedule of `other`.
  std::vector<Source> sources(const schedule::Training& other, const schedule::Schedule& schedule) {
    std::vector<Source> sources;
    std::map<Exact, int> seen;
    for (const Op& op : schedule.ops) {
      Source& source = sources.emplace_back();
      if (!op.has_work()) continue;
      const OpWork work = work_of(op, schedule, other.plan.groups, other.sizes);
      const Links links = links_of(op, other);
      Exact exact = exact_of(op, work, links);
      std::get<3>(exact) = seen[exact]++;
      source = find(op, work, links, exact);
      if (work.unit == OpWork::Unit::wire_bytes) {
        source.hops = work.fixed;
        source.latency_ns = best_fit(op, work, links).first.fixed_ns * work.fixed;
      }
    }
    return sources;
  }

 private:
  // Kind, links, unit and module; amount of work, fixed part.
  using Like = std::tuple<OpKind, Links, int, int, double, double>;
  // And phase, microbatch, how many equal ones came before it.
  using Exact = std::tuple<Like, schedule::Phase, int, int>;

  Links links_of(const Op& op, const schedule::Training& of) const {
    if (measured_.one_fabric() || !op.is_collective()) return {ranks_of(op)};
    const plan::Members members = of.plan.groups.members(op.group(), 0);
    return {plan::Group::none, members.count, members.stride};
  }
  static Like like_of(const Op& op, const OpWork& work, const Links& links, bool same_unit) {
    return {op.kind, links, same_unit ? op.unit : -2, op.module, work.amount, work.fixed};
  }
  static Exact exact_of(const Op& op, const OpWork& work, const Links& links) {
    return {like_of(op, work, links, true), op.phase, op.micro, 0};
  }

  Source find(const Op& op, const OpWork& work, const Links& links, const Exact& exact) {
    Source source;
    if (const auto at = exact_.find(exact); at != exact_.end()) {
      source.ops = {at->second};
      return source;
    }
    for (const bool same_unit : {true, false}) {
      const auto at = like_.find(like_of(op, work, links, same_unit));
      if (at == like_.end()) continue;
      source.ops = at->second;
      return source;
    }
    // A group of one moves nothing.
    if (work.unit == OpWork::Unit::wire_bytes && work.fixed == 0) return source;
    if (work.unit == OpWork::Unit::flops) {
      for (const OpKind kind : {op.kind, OpKind::forward}) {
        const auto at = by_module_.find({kind, op.module});
        if (at == by_module_.end()) continue;
        const Op& like = schedule_.ops[at->second.front()];
        const double flops = work_of(like, schedule_, measured_.run().plan.groups, measured_.run().sizes).amount;
        source.ops = at->second;
        source.factor = work.amount / flops;
        source.origin = TimeOrigin::scaled;
        source.reach = Reach::extrapolated;
        source.doubt = kOtherOp + kOtherSize * std::abs(std::log(source.factor));
        return source;
      }
    }
    const auto [fit, origin] = best_fit(op, work, links);
    if (fit.samples == 0 && op.is_collective() && !measured_.one_fabric()) {
      throw ConfigError(fmt::format(
          "no collective of this run had {} ranks that are {} apart, as '{}' would have, and its links are not all of "
          "one speed: measure that configuration, or `fsdpbench simulate` it",
          links.ranks, links.apart, schedule::to_string(op.kind)));
    }
    if (fit.samples == 0) {
      throw ConfigError(fmt::format(
          "nothing in this run took a time from which that of '{}' could be told: measure that configuration, or "
          "`fsdpbench simulate` it",
          schedule::to_string(op.kind)));
    }
    source.ns = fit.ns(work.fixed, work.amount);
    source.origin = origin;
    source.reach = Reach::extrapolated;
    source.doubt = fit.within + kOtherKind;
    if (origin == TimeOrigin::fitted) {
      const double ratio = least_ratio(op, work, links);
      source.reach = ratio == 1 ? Reach::interpolated : Reach::extrapolated;
      source.doubt = fit.within + kOtherSize * std::log(ratio);
    }
    return source;
  }

  /// The ratio of an op's size to the nearest size of its kind that was measured, at least 1. It is 1 if the size lies
  /// between two measured ones.
  double least_ratio(const Op& op, const OpWork& work, const Links& links) const {
    constexpr double kMost = 1e3;
    double less = kMost, more = kMost;
    for (const int i : by_kind_.at({work.unit, op.kind, links})) {
      const Op& known = schedule_.ops[i];
      const double amount = work_of(known, schedule_, measured_.run().plan.groups, measured_.run().sizes).amount;
      if (amount <= work.amount) less = std::min(less, work.amount / amount);
      if (amount >= work.amount) more = std::min(more, amount / work.amount);
    }
    return less < kMost && more < kMost ? 1 : std::min(less, more);
  }

  /// The nearest fit there is: of its kind on its link, of anything on its link, or of anything of its sort.
  std::pair<LineFit, TimeOrigin> best_fit(const Op& op, const OpWork& work, const Links& links) {
    if (const auto at = by_kind_.find({work.unit, op.kind, links}); at != by_kind_.end()) {
      return {fit_once(at->second), TimeOrigin::fitted};
    }
    if (const auto at = by_links_.find({work.unit, links}); at != by_links_.end()) {
      return {fit_once(at->second), TimeOrigin::borrowed};
    }
    const bool tells = measured_.one_fabric() || work.unit != OpWork::Unit::wire_bytes;
    if (const auto at = by_unit_.find(work.unit); tells && at != by_unit_.end()) {
      return {fit_once(at->second), TimeOrigin::borrowed};
    }
    return {LineFit{}, TimeOrigin::borrowed};
  }

  /// Every list begins with another op, or is another list: its address is its name.
  LineFit fit_once(const std::vector<int>& ops) {
    const auto [at, added] = fits_.try_emplace(&ops);
    if (added) at->second = measured_.fit(with_peers(ops));
    return at->second;
  }

  /// Collectives of one rank take nothing and say nothing about a link.
  std::vector<int> with_peers(std::vector<int> ops) const {
    std::erase_if(ops, [&](int i) {
      const Op& op = schedule_.ops[i];
      return op.is_collective() && measured_.run().plan.groups.size(op.group()) == 1;
    });
    return ops;
  }

  const MeasuredTimes& measured_;
  const schedule::Schedule& schedule_;
  std::map<Exact, int> exact_;
  std::map<Like, std::vector<int>> like_;
  std::map<std::tuple<OpWork::Unit, OpKind, Links>, std::vector<int>> by_kind_;
  std::map<std::pair<OpWork::Unit, Links>, std::vector<int>> by_links_;
  std::map<OpWork::Unit, std::vector<int>> by_unit_;
  std::map<std::pair<OpKind, int>, std::vector<int>> by_module_;
  std::map<const std::vector<int>*, LineFit> fits_;
};

double factor_of(const std::vector<double>& factors, std::size_t rank) { return factors.empty() ? 1.0 : factors[rank]; }

/// The slowest link among the members of a rank's group: a transfer ends with it.
double slowest(const std::vector<double>& factors, const plan::Groups& groups, plan::Group group, std::size_t rank) {
  if (factors.empty()) return 1;
  const plan::Members members = groups.members(group, static_cast<int>(rank));
  double slowest = 0;
  for (int m = 0; m < members.count; ++m) slowest = std::max(slowest, factors[members[m]]);
  return slowest;
}

class StepMapping {
 public:
  StepMapping(const MeasuredTimes& measured, std::size_t step, const schedule::Training& other, const Changes& changes)
      : measured_(measured), step_(step), other_(other), changes_(changes) {}

  std::int64_t ns(const Op& op, const Source& source, std::size_t rank) const {
    double ns = source.ns;
    if (!source.ops.empty()) {
      double sum = 0;
      for (const int i : source.ops) {
        const std::int64_t took = measured_.ns(step_, rank)[i];
        if (took == MeasuredTimes::kNone) {
          throw ConfigError(fmt::format("rank {} has no time of '{}' in any step of its trace: its record was lost",
                                        rank, schedule::to_string(op.kind)));
        }
        sum += static_cast<double>(took);
      }
      ns = sum / static_cast<double>(source.ops.size()) * source.factor;
    }
    return whole_ns(op.is_collective() ? transfer(op, source, ns, rank) : computation(op, ns, rank));
  }

 private:
  double transfer(const Op& op, const Source& source, double ns, std::size_t rank) const {
    const double latency = std::min(source.latency_ns, ns);
    const double links = slowest(changes_.link_is, other_.plan.groups, op.group(), rank) /
                         slowest(changes_.link_was, other_.plan.groups, op.group(), rank);
    return std::max(0.0, latency + changes_.hop_ns * source.hops) + (ns - latency) / changes_.link_scale * links;
  }

  double computation(const Op& op, double ns, std::size_t rank) const {
    const bool module = op.kind == OpKind::forward || op.kind == OpKind::recompute || op.kind == OpKind::backward;
    if (module) ns /= changes_.compute_scale;
    return op.lane == Lane::compute ? ns * factor_of(changes_.compute_factor, rank) : ns;
  }

  const MeasuredTimes& measured_;
  std::size_t step_;
  const schedule::Training& other_;
  const Changes& changes_;
};

// Kind, phase, unit, module, microbatch, and how many equal ones came before it.
using SameOp = std::tuple<OpKind, schedule::Phase, int, int, int, int>;

/// Names of a schedule's ops but the host's, which take none; no two are equal.
std::vector<SameOp> names_of(const schedule::Schedule& schedule) {
  std::map<SameOp, int> seen;
  std::vector<SameOp> names;
  for (const Op& op : schedule.ops) {
    SameOp name{op.kind, op.phase, op.unit, op.module, op.micro, 0};
    std::get<5>(name) = seen[name]++;
    names.push_back(name);
  }
  return names;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(std::int64_t ns) {
    sum += static_cast<double>(ns);
    ++count;
  }
  double value() const { return count > 0 ? sum / count : 0; }
};

/// Time in which the host would issue the ops of another schedule: that of the same op here; where there was
/// none, the mean of its kind, and of all ops where its kind was never issued.
class IssueTimes {
 public:
  /// `from`: a schedule that was measured; `to`: the other one. Both must live on.
  IssueTimes(const schedule::Schedule& from, const schedule::Schedule& to);

  /// By op of `to`, in nanoseconds, for one rank in one measured step that had the schedule `from`; `more_ns` is added
  /// to each. 0 for host ops, which only wait.
  std::vector<std::int64_t> of(const MeasuredTimes& measured, std::size_t step, std::size_t rank, double more_ns) const;

 private:
  const schedule::Schedule& from_;
  const schedule::Schedule& to_;
  std::vector<int> same_;  // by op of to_: the same one of from_; -1: none
};

IssueTimes::IssueTimes(const schedule::Schedule& from, const schedule::Schedule& to) : from_(from), to_(to) {
  std::map<SameOp, int> known;
  const std::vector<SameOp> names = names_of(from);
  for (std::size_t i = 0; i < names.size(); ++i) known.emplace(names[i], static_cast<int>(i));
  for (const SameOp& name : names_of(to)) {
    const auto at = known.find(name);
    same_.push_back(at == known.end() ? -1 : at->second);
  }
}

std::vector<std::int64_t> IssueTimes::of(const MeasuredTimes& measured, std::size_t step, std::size_t rank,
                                         double more_ns) const {
  const std::span<const std::int64_t> took = measured.issue_ns(step, rank);
  std::map<OpKind, Mean> by_kind;
  Mean all;
  for (std::size_t i = 0; i < took.size(); ++i) {
    if (took[i] == MeasuredTimes::kNone) continue;
    by_kind[from_.ops[i].kind].add(took[i]);
    all.add(took[i]);
  }
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < to_.ops.size(); ++i) {
    if (to_.ops[i].is_host()) {
      result.push_back(0);
      continue;
    }
    const std::int64_t same = same_[i] < 0 ? MeasuredTimes::kNone : took[same_[i]];
    const auto kind = by_kind.find(to_.ops[i].kind);
    const double ns = same != MeasuredTimes::kNone ? static_cast<double>(same)
                      : kind != by_kind.end()      ? kind->second.value()
                                                   : all.value();
    result.push_back(whole_ns(ns + more_ns));
  }
  return result;
}

/// `by_rank`: of one step.
void replace_straggler(const schedule::Schedule& schedule, std::size_t straggler,
                       std::vector<std::vector<std::int64_t>>& by_rank) {
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (schedule.ops[i].is_collective()) continue;
    std::vector<std::int64_t> others;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (rank != straggler) others.push_back(by_rank[rank][i]);
    }
    by_rank[straggler][i] = lower_median(std::move(others));
  }
}

}  // namespace

std::string_view to_string(TimeOrigin origin) {
  constexpr EnumNames<TimeOrigin> kNames{"measured", "scaled", "fitted", "borrowed"};
  return kNames[origin];
}

WhatIfTimes what_if_times(const MeasuredTimes& measured, const schedule::Training& other, const Changes& changes) {
  WhatIfTimes result;
  OpTimes& times = result.times;
  std::map<const schedule::Schedule*, Library> libraries;
  std::map<std::pair<const schedule::Schedule*, const schedule::Schedule*>, std::vector<Source>> known;
  std::map<std::pair<const schedule::Schedule*, const schedule::Schedule*>, IssueTimes> issues;
  for (std::size_t number = 0; number < measured.first_step() + measured.steps(); ++number) {
    const std::size_t step = number < measured.first_step() ? 0 : number - measured.first_step();
    const schedule::Schedule& from = measured.schedule_of(step);
    const schedule::Schedule& to = other.schedules.of_step(number);
    Library& library = libraries.try_emplace(&from, measured, from).first->second;
    const auto [at, added] = known.try_emplace({&from, &to});
    if (added) at->second = library.sources(other, to);
    const std::vector<Source>& sources = at->second;
    const IssueTimes& issue = issues.try_emplace({&from, &to}, from, to).first->second;
    const StepMapping mapping(measured, step, other, changes);
    auto& by_rank = times.given.emplace_back();
    auto& issue_by_rank = times.given_issue.emplace_back();
    for (std::size_t rank = 0; rank < measured.ranks(); ++rank) {
      std::vector<std::int64_t>& ns = by_rank.emplace_back();
      for (std::size_t i = 0; i < to.ops.size(); ++i) {
        ns.push_back(to.ops[i].has_work() ? mapping.ns(to.ops[i], sources[i], rank) : 0);
      }
      issue_by_rank.push_back(issue.of(measured, step, rank, changes.issue_ns));
    }
    for (const int rank : {changes.straggler, changes.late_rank}) {
      if (rank >= 0) replace_straggler(to, rank, by_rank);
    }
    result.origins = {};
    result.reach = {};
    std::array<double, kLaneCount> doubt_ns{};
    StepCosts& costs = times.steps.emplace_back();
    for (std::size_t i = 0; i < to.ops.size(); ++i) {
      if (to.ops[i].has_work()) {
        ++result.origins[sources[i].origin];
        ++result.reach[sources[i].reach];
        for (const auto& mine : by_rank) {
          doubt_ns[index_of(to.ops[i].lane)] +=
              sources[i].doubt * static_cast<double>(mine[i]) / static_cast<double>(by_rank.size());
        }
      }
      costs.push_back({std::max(0.0, std::nearbyint(sources[i].latency_ns + changes.hop_ns * sources[i].hops))});
    }
    result.doubt_ns = 0;
    for (const double ns : doubt_ns) result.doubt_ns = std::hypot(result.doubt_ns, ns);
  }
  times.ops = measured.shared_link() ? OpTimes::Ops::given_alone : OpTimes::Ops::given;
  times.issue = OpTimes::Issue::given;
  return result;
}

}  // namespace fsdpbench::clock
