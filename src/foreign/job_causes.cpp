#include "foreign/job_causes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/median.h"


namespace fsdpbench::foreign {
namespace {

using metrics::Cause;
using metrics::Stall;
using schedule::Phase;

std::vector<std::int64_t> likeness(const RankRows& rank, std::int32_t row) {
  const DeviceRow& device = rank.device[static_cast<std::size_t>(row)];
  if (device.collective < 0) return {};
  const CollectiveFacts& facts = rank.collectives[static_cast<std::size_t>(device.collective)];
  if (facts.elements_in < 0 && facts.elements_out < 0) return {};  // nobody knows what is like it
  const std::int64_t size = facts.group < 0 ? -1 : rank.groups[static_cast<std::size_t>(facts.group)].size;
  return {static_cast<std::int64_t>(facts.kind), facts.elements_in, facts.elements_out,
          static_cast<std::int64_t>(bytes_of_dtype(facts.dtype)), size};
}

/// One rank's step while its stalls are found.
class StallFinder {
 public:
  StallFinder(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched, const JobTypes& types,
              int rank, std::size_t step)
      : job_(job),
        rank_(job.ranks[static_cast<std::size_t>(rank)]),
        found_(found.ranks[static_cast<std::size_t>(rank)]),
        matched_(matched),
        types_(types),
        place_(rank),
        step_(found_.cut.steps[step]),
        sets_(intervals_of(rank_, step_)) {
    for (const CollectiveUse& use : found_.uses[step]) uses_[use.row] = &use;
    first_launch_ = launched_ns(rank_, step_.device.front());
    if (found.schedule) {
      prefetches_backward_ = found.schedule->config.fsdp.backward_prefetch.mode != config::Prefetch::Mode::none;
      follows_compute_ = found.schedule->config.fsdp.gathers_follow_compute;
    }
    for (const std::int32_t index : step_.running) {
      const DeviceRow& row = device(index);
      if (row.kind == Activity::collective) collectives_.push_back(index);
      if (row.kind == Activity::copy || row.kind == Activity::fill) copies_.push_back(index);
    }
    for (std::int32_t i : collectives_) longest_ = std::max(longest_, device(i).end_ns - device(i).begin_ns);
    const IntervalSet& loads = found_.cut.loads;
    for (auto at = std::ranges::upper_bound(loads, step_.window.begin, {}, &Interval::end);
         at != loads.end() && at->begin < step_.window.end; ++at) {
      loads_.push_back(*at);
    }
  }

  std::vector<Stall> find() {
    // A copy where computation should run holds it up, whatever is sent beside it.
    IntervalSet copying;
    for (std::int32_t row : copies_) {
      if (device(row).stream == found_.compute_stream) copying.push_back({device(row).begin_ns, device(row).end_ns});
    }
    const IntervalSet stalled = subtract(IntervalSet{step_.window}, sets_.computation);
    copying = intersect(stalled, unite(std::move(copying)));
    for (const Interval& part : copying) add(part.begin, part.end, Cause::copy, copy_at(part.begin));
    for (const Interval& gap : subtract(stalled, copying)) walk(gap);
    std::ranges::sort(stalls_, {}, [](const Stall& s) { return s.time.begin; });
    return std::move(stalls_);
  }

 private:
  const DeviceRow& device(std::int32_t row) const { return rank_.device[static_cast<std::size_t>(row)]; }

  /// Collectives that run at some moment of [begin, end).
  std::vector<std::int32_t> running(std::int64_t begin, std::int64_t end) const {
    std::vector<std::int32_t> rows;
    const auto begin_of = [&](std::int32_t i) { return device(i).begin_ns; };
    for (auto at = std::ranges::lower_bound(collectives_, begin - longest_, {}, begin_of);
         at != collectives_.end() && begin_of(*at) < end; ++at) {
      if (device(*at).end_ns > begin) rows.push_back(*at);
    }
    return rows;
  }

  /// The copy that begins at `ns`, or next.
  std::int32_t copy_at(std::int64_t ns) const {
    const auto at = std::ranges::lower_bound(copies_, ns, {}, [&](std::int32_t i) { return device(i).begin_ns; });
    return at == copies_.end() ? (copies_.empty() ? -1 : copies_.back()) : *at;
  }

  void add(std::int64_t begin, std::int64_t end, Cause cause, std::int32_t row, int late = -1) {
    if (begin < end) stalls_.push_back({{begin, end}, cause, row, late});
  }

  void walk(const Interval& gap) {
    std::int64_t at = gap.end;
    while (at > gap.begin) {
      // Of the collectives that run in what is left, the one that ends last; of those that go on, the first to begin.
      std::int32_t last = -1;
      for (std::int32_t row : running(gap.begin, at)) {
        const DeviceRow& d = device(row);
        if (last < 0 || std::min(d.end_ns, at) > std::min(device(last).end_ns, at) ||
            (std::min(d.end_ns, at) == std::min(device(last).end_ns, at) && ends_nearer(d, device(last), at))) {
          last = row;
        }
      }
      if (last < 0) {
        idle(gap.begin, at, at == gap.end && gap.end < step_.window.end);
        return;
      }
      const std::int64_t end = std::min(device(last).end_ns, at);
      idle(end, at, at == gap.end && gap.end < step_.window.end);
      const std::int64_t begin = std::max(device(last).begin_ns, gap.begin);
      communicate(last, begin, end, gap);
      at = begin;
    }
  }

  /// Both run until `at`: what ends there held computation up, rather than what goes on beyond.
  static bool ends_nearer(const DeviceRow& a, const DeviceRow& b, std::int64_t at) {
    const std::int64_t beyond_a = a.end_ns - at, beyond_b = b.end_ns - at;
    return beyond_a != beyond_b ? beyond_a < beyond_b : a.begin_ns < b.begin_ns;
  }

  /// [begin, end): the collective ran and nothing was computed.
  void communicate(std::int32_t row, std::int64_t begin, std::int64_t end, const Interval& gap) {
    const DeviceRow& own = device(row);
    if (passed_on_.reduction == row) {  // what stood behind it needed not have
      add(begin, end, passed_on_.cause, passed_on_.gather);
      return;
    }
    const MatchedCollectives::Arrival arrival = matched_.last_arrival(place_, row);
    // Ranks that come within a hundredth of a transfer of each other do not wait for each other.
    const std::int64_t waited = arrival.at_ns - own.begin_ns;
    if (waited * 50 > own.end_ns - own.begin_ns && arrival.late_rank >= 0) {
      const std::int64_t until = std::clamp(arrival.at_ns, begin, end);
      add(begin, until, Cause::straggler, row, arrival.late_rank);
      begin = until;
    }
    if (begin >= end) return;
    const std::int64_t usual = types_.usual_transfer_ns(rank_, row);
    const std::int64_t took = own.end_ns - arrival.at_ns;
    if (usual > 0 && took * 4 > usual * 5) {
      const std::int64_t from = std::clamp(own.end_ns - (took - usual), begin, end);
      add(from, end, Cause::slow_transfer, row);
      end = from;
      if (begin >= end) return;
    }
    // Behind a transfer that had waited: without that rank's lateness this one would have been over so much sooner.
    if (const auto [late_ns, late_rank] = inherited_wait(row); late_ns > 0) {
      const std::int64_t from = std::max(begin, end - late_ns);
      add(from, end, Cause::straggler, row, late_rank);
      end = from;
      if (begin >= end) return;
    }
    const auto [cause, held_ns] = held_up(row, gap);
    // What it was held up is what it would have ended earlier.
    const std::int64_t from = held_ns >= end - begin ? begin : end - held_ns;
    add(from, end, cause, row);
    if (from > begin) add(begin, from, ends_of_step(row, gap) ? Cause::step_boundary : Cause::link_bound, row);
  }

  /// The collective that ended last before `row` began, on its stream or its communicator; -1: none.
  std::int32_t before(std::int32_t row) const {
    const DeviceRow& own = device(row);
    const std::int64_t slack = types_.launch_lag_ns(static_cast<std::size_t>(place_));
    std::int32_t found = -1;
    const auto begin_of = [&](std::int32_t i) { return device(i).begin_ns; };
    for (auto at = std::ranges::lower_bound(collectives_, own.begin_ns, {}, begin_of); at != collectives_.begin();) {
      const DeviceRow& other = device(*--at);
      if (*at == row || other.end_ns > own.begin_ns + slack) continue;
      if (other.stream != own.stream && !same_group(other, own)) continue;
      if (found >= 0 && other.end_ns <= device(found).end_ns) {
        if (other.begin_ns + longest_ < device(found).end_ns) break;
        continue;
      }
      found = *at;
    }
    return found;
  }

  /// How long the collective that stands right before `row` had waited for a rank, and for whom.
  std::pair<std::int64_t, int> inherited_wait(std::int32_t row) const {
    const std::int32_t other = before(row);
    if (other < 0) return {0, -1};
    if (device(row).begin_ns - device(other).end_ns > types_.launch_lag_ns(static_cast<std::size_t>(place_)))
      return {0, -1};
    const MatchedCollectives::Arrival arrival = matched_.last_arrival(place_, other);
    const std::int64_t wait = arrival.at_ns - device(other).begin_ns;
    const bool counts = arrival.late_rank >= 0 && wait * 10 > device(other).end_ns - device(other).begin_ns;
    return counts ? std::make_pair(wait, arrival.late_rank) : std::make_pair(std::int64_t{0}, -1);
  }

  bool ends_of_step(std::int32_t row, const Interval& gap) const {
    const auto use = uses_.find(row);
    const Phase phase = use == uses_.end() ? Phase::forward : use->second->phase;
    if (sets_.computation.empty()) return true;
    const bool first = gap.begin == step_.window.begin || gap.end <= sets_.computation.front().begin;
    // Reductions end the step: only what updates parameters comes after them.
    const bool reduces = use != uses_.end() && use->second->purpose != Purpose::parameters;
    return (first && phase == Phase::forward) || (reduces && nothing_follows(row)) || gap.end == step_.window.end;
  }

  /// No more collectives are launched after this one but reductions: the last of backward.
  bool nothing_follows(std::int32_t row) const {
    const auto at = std::ranges::find(step_.device, row);
    if (at == step_.device.end()) return false;
    const auto& own = uses_.find(row);
    for (auto next = at + 1; next != step_.device.end(); ++next) {
      const auto use = uses_.find(*next);
      if (use != uses_.end()) {
        if (use->second->purpose == Purpose::parameters && use->second->phase != Phase::optimizer) return false;
        if (own != uses_.end() && use->second->unit != own->second->unit &&
            use->second->purpose == Purpose::gradients && device(*next).begin_ns > device(row).end_ns) {
          return false;
        }
      }
    }
    return true;
  }

  /// Why the transfer did not begin earlier, and how much of that a setting could have spared: what held it up beyond
  /// the next thing that did.
  std::pair<Cause, std::int64_t> held_up(std::int32_t row, const Interval& gap) {
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    const DeviceRow& own = device(row);
    if (ends_of_step(row, gap)) return {Cause::step_boundary, kAll};
    const std::int64_t slack = types_.launch_lag_ns(static_cast<std::size_t>(place_));
    const std::int32_t other = before(row);
    const std::int64_t free_since = other < 0 ? step_.window.begin : device(other).end_ns;
    const std::int64_t launched = launched_ns(rank_, row);
    if (own.launch >= 0 && own.begin_ns - launched <= slack && launched > free_since) {
      const auto blocked = blocked_before(launched);
      const Cause cause = blocked ? of_wait(*blocked) : host_behind(launched) ? Cause::host_bound : Cause::late_prefetch;
      return {cause, launched - free_since};
    }
    const auto use = uses_.find(other), own_use = uses_.find(row);
    const bool gathers = own_use != uses_.end() && own_use->second->purpose == Purpose::parameters;
    const bool backward = gathers && own_use->second->phase == Phase::backward;
    if (other < 0 || own.begin_ns - free_since > slack) {
      // Launched early, with its stream free: it waited for an event. Parameters depend on no computation, so it is
      // one after which there is memory to gather them, or after which the program lets them be gathered.
      if (!gathers || !computation_ended_before(row)) return {Cause::link_bound, kAll};
      return {backward || follows_compute_ ? Cause::all_gather_limit : Cause::late_prefetch,
              own.begin_ns - std::max(launched, free_since)};
    }
    if (use == uses_.end() || own_use == uses_.end() || use->second->purpose == own_use->second->purpose) {
      return {Cause::link_bound, kAll};
    }
    const std::int32_t earlier = before(other);
    const std::int64_t held =
        own.begin_ns - std::max(device(other).begin_ns, earlier < 0 ? step_.window.begin : device(earlier).end_ns);
    // A prefetch would have stood before the reduction. Where others are prefetched, this one was refused.
    if (backward && !prefetches_backward_) {
      passed_on_ = {other, row, Cause::late_prefetch};
      return {Cause::late_prefetch, held};
    }
    if (backward && launched_on_demand(row)) {
      passed_on_ = {other, row, Cause::all_gather_limit};
      return {Cause::all_gather_limit, held};
    }
    // The one before was busy sending: a communicator of its own would only have shared the same link.
    if (types_.mostly_latency(rank_, other)) return {Cause::communicator_serialisation, held};
    return {Cause::link_bound, kAll};
  }

  /// Whether something that computes ended right before the collective began.
  bool computation_ended_before(std::int32_t row) const {
    const std::int64_t begin = device(row).begin_ns, slack = types_.launch_lag_ns(static_cast<std::size_t>(place_));
    const auto after = std::ranges::upper_bound(sets_.computation, begin, {}, &Interval::begin);
    if (after == sets_.computation.begin()) return false;
    // Between two rows that follow each other at once, too: the set has them as one.
    return begin - (after - 1)->end <= slack;
  }

  /// Whether all that was launched after the gather waited for it: of what is gathered ahead, other units compute
  /// meanwhile.
  bool launched_on_demand(std::int32_t row) const {
    const auto at = std::ranges::find(step_.device, row);
    for (auto next = at; next != step_.device.end(); ++next) {
      const DeviceRow& d = device(*next);
      if (d.kind == Activity::computation && d.stream == found_.compute_stream) return d.begin_ns >= device(row).end_ns;
    }
    return false;
  }

  bool same_group(const DeviceRow& a, const DeviceRow& b) const {
    if (a.collective < 0 || b.collective < 0) return false;
    const std::int32_t group = rank_.collectives[static_cast<std::size_t>(a.collective)].group;
    return group >= 0 && group == rank_.collectives[static_cast<std::size_t>(b.collective)].group;
  }

  /// The host's wait that ended just before `launched`: nothing else was launched between.
  std::optional<std::int32_t> blocked_before(std::int64_t launched) const {
    const auto end_of = [&](std::int32_t i) { return rank_.host[static_cast<std::size_t>(i)].end_ns; };
    auto at = std::ranges::upper_bound(found_.cut.waits, launched, {}, end_of);
    for (; at != found_.cut.waits.begin(); --at) {
      const HostRow& wait = rank_.host[static_cast<std::size_t>(*(at - 1))];
      if (wait.end_ns <= first_launch_ ||
          launched - wait.end_ns > types_.launch_lag_ns(static_cast<std::size_t>(place_)))
        break;
      if (wait.end_ns - wait.begin_ns > 1000) return *(at - 1);
    }
    return std::nullopt;
  }

  Cause of_wait(std::int32_t row) const {
    const HostRow& wait = rank_.host[static_cast<std::size_t>(row)];
    return rank_.names[static_cast<std::size_t>(wait.name)].find("Event") != std::string::npos ? Cause::all_gather_limit
                                                                                               : Cause::host_sync;
  }

  /// Whether computation before `launched` was launched late, too: the device had nothing queued.
  bool host_behind(std::int64_t launched) const {
    int seen = 0, late = 0;
    const std::int64_t slack = types_.launch_lag_ns(static_cast<std::size_t>(place_));
    for (auto at = step_.running.rbegin(); at != step_.running.rend() && seen < 8; ++at) {
      const DeviceRow& row = device(*at);
      if (row.kind != Activity::computation || row.begin_ns >= launched || row.launch < 0) continue;
      ++seen;
      late += row.begin_ns - launched_ns(rank_, *at) <= slack;
    }
    return seen > 0 && late * 2 > seen;
  }

  /// [begin, end): no collective, no computation. `ended`: work began at its end.
  void idle(std::int64_t begin, std::int64_t end, bool ended) {
    if (begin >= end) return;
    IntervalSet left{{begin, end}};
    std::int32_t next = -1;
    if (ended) {
      const auto at =
          std::ranges::lower_bound(step_.running, end, {}, [&](std::int32_t i) { return device(i).begin_ns; });
      if (at != step_.running.end()) next = *at;
    }
    const auto& copies = sets_.exposed_copies;
    for (auto at = std::ranges::upper_bound(copies, begin, {}, &Interval::end); at != copies.end() && at->begin < end;
         ++at) {
      for (const Interval& part : intersect(left, IntervalSet{*at})) {
        add(part.begin, part.end, Cause::copy, copy_at(at->begin));
      }
      left = subtract(left, IntervalSet{*at});
    }
    for (const Interval& part : intersect(left, loads_)) add(part.begin, part.end, Cause::data_loading, next);
    left = subtract(left, loads_);
    for (const Interval& part : left) {
      Cause cause = Cause::unknown;
      // What came next, a copy or computation, had just been launched.
      std::int32_t after = next;
      const auto at =
          std::ranges::lower_bound(step_.running, part.end, {}, [&](std::int32_t i) { return device(i).begin_ns; });
      if (at != step_.running.end() && device(*at).begin_ns == part.end) after = *at;
      if (after >= 0 && device(after).launch >= 0) {
        const std::int64_t launched = launched_ns(rank_, after);
        if (launched > part.begin) {
          const auto blocked = blocked_before(launched);
          cause = blocked ? of_wait(*blocked) : Cause::host_bound;
        }
      }
      if (part.end == step_.window.end && after < 0) cause = Cause::host_bound;  // the host had not begun the next step
      add(part.begin, part.end, cause, after);
    }
  }

  const JobTrace& job_;
  const RankRows& rank_;
  const RecognisedRank& found_;
  const MatchedCollectives& matched_;
  const JobTypes& types_;
  int place_;
  const JobStep& step_;
  metrics::StepIntervals sets_;
  std::map<std::int32_t, const CollectiveUse*> uses_;
  std::vector<std::int32_t> collectives_, copies_;
  std::int64_t longest_ = 0, first_launch_ = 0;
  bool prefetches_backward_ = true, follows_compute_ = false;
  struct PassedOn {
    std::int32_t reduction = -1, gather = -1;
    Cause cause = Cause::late_prefetch;
  };
  PassedOn passed_on_;  // a reduction whose time is put down to the gather behind it
  IntervalSet loads_;
  std::vector<Stall> stalls_;
};

}  // namespace

metrics::StepIntervals intervals_of(const RankRows& rank, const JobStep& step) {
  metrics::StepIntervals sets;
  sets.window = {step.window};
  IntervalSet computation, communication, copies;
  for (const std::int32_t index : step.running) {
    const DeviceRow& row = rank.device[static_cast<std::size_t>(index)];
    const Interval time{std::max(row.begin_ns, step.window.begin), std::min(row.end_ns, step.window.end)};
    if (time.begin >= time.end) continue;
    (row.kind == Activity::computation  ? computation
     : row.kind == Activity::collective ? communication
                                        : copies)
        .push_back(time);
  }
  sets.computation = unite(std::move(computation));
  sets.communication = unite(std::move(communication));
  copies = unite(std::move(copies));
  sets.exposed_communication = subtract(sets.communication, sets.computation);
  sets.exposed_copies = subtract(subtract(copies, sets.computation), sets.communication);
  sets.idle = subtract(sets.window, unite(unite(sets.computation, sets.communication), copies));
  return sets;
}

JobTypes::JobTypes(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched) {
  std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> transfers;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    std::vector<std::int64_t> lags;
    for (std::size_t i = 0; i < rank.device.size(); ++i) {
      const DeviceRow& row = rank.device[i];
      const auto index = static_cast<std::int32_t>(i);
      if (row.launch >= 0) lags.push_back(std::max<std::int64_t>(0, row.begin_ns - launched_ns(rank, index)));
      if (row.collective < 0) continue;
      const auto arrival = matched.last_arrival(static_cast<int>(r), index);
      transfers[likeness(rank, index)].push_back(row.end_ns - arrival.at_ns);
    }
    // A launch takes what the quickest ones take: twice that is not yet late, and clocks are good for microseconds.
    // Where the host is far ahead even the quickest have waited for others.
    constexpr std::int64_t kLongestLaunch = 100'000;
    std::ranges::sort(lags);
    lag_.push_back(5000 + (lags.empty() ? 0 : 2 * std::min(kLongestLaunch, lags[lags.size() / 20])));
  }
  constexpr std::size_t kFewest = 4;
  for (auto& [key, values] : transfers) {
    if (!key.empty() && values.size() >= kFewest) usual_.emplace_back(key, upper_median(std::move(values)));
  }
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    for (const auto& uses : found.ranks[r].uses) {
      for (const CollectiveUse& use : uses) best_rate_ = std::max(best_rate_, rate(job.ranks[r], use.row));
    }
  }
}

double JobTypes::rate(const RankRows& rank, std::int32_t row) {
  const DeviceRow& device = rank.device[static_cast<std::size_t>(row)];
  if (device.collective < 0 || device.end_ns <= device.begin_ns) return 0;
  const CollectiveFacts& facts = rank.collectives[static_cast<std::size_t>(device.collective)];
  const double bytes =
      static_cast<double>(std::max(facts.elements_in, facts.elements_out)) * bytes_of_dtype(facts.dtype);
  return bytes / static_cast<double>(device.end_ns - device.begin_ns);
}

bool JobTypes::mostly_latency(const RankRows& rank, std::int32_t row) const {
  const double own = rate(rank, row);
  return own > 0 && own * 2 < best_rate_;
}

std::int64_t JobTypes::usual_transfer_ns(const RankRows& rank, std::int32_t row) const {
  const std::vector<std::int64_t> key = likeness(rank, row);
  const auto at = std::ranges::lower_bound(usual_, key, {}, [](const auto& entry) { return entry.first; });
  return at == usual_.end() || at->first != key ? -1 : at->second;
}

std::vector<Stall> find_job_stalls(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                                      const JobTypes& types, int rank, std::size_t step) {
  return StallFinder(job, found, matched, types, rank, step).find();
}

}  // namespace fsdpbench::foreign
