#include "foreign/unused_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/words/words.h"
#include "foreign/host_words.h"
#include "foreign/kineto_names.h"
#include "foreign/match_schedule.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;
using schedule::Waste;

/// Ranges of a unit, in the order of the host.
struct UnitEvent {
  enum class What : std::uint8_t { gather, use, done, drop } what = What::gather;
  std::int64_t at_ns = 0;
  std::string unit;
  const CollectiveUse* use = nullptr;  ///< of a gather
  bool backward = false;               ///< of done: after backward
  std::size_t step = 0;                ///< of a gather
};

/// One all-gather, once it is known what became of it.
struct Fate {
  const CollectiveUse* gather = nullptr;
  std::string unit;
  std::int64_t used_ns = -1;  ///< when it was copied out; -1: never
  bool early = false;         ///< another use of its unit had been the last thing that computed
  bool next_micro = false;    ///< of early: that was in the backward before
  bool dropped = false;       ///< it was there, unused, when the engine dropped it
};

class RangeFollower {
 public:
  RangeFollower(const RankRows& rank, const std::vector<UnitEvent>& events) : rank_(rank) {
    for (const UnitEvent& event : events) follow(event);
  }
  const std::vector<Fate>& fates() const { return fates_; }

 private:
  void follow(const UnitEvent& event) {
    std::vector<std::size_t>& open = open_[event.unit];
    switch (event.what) {
      case UnitEvent::What::gather:
        if (std::exchange(step_, event.step) != event.step) last_done_.reset();  // the optimizer has changed parameters
        open.push_back(fates_.size());
        fates_.push_back({.gather = event.use, .unit = event.unit});
        return;
      case UnitEvent::What::use: {
        if (!open.empty()) {  // what came last is what is copied out
          Fate& fate = fates_[open.back()];
          open.pop_back();
          fate.used_ns = event.at_ns;
          fate.early = last_done_ && last_done_->unit == event.unit && computes_nothing(last_done_->at_ns, event.at_ns);
          fate.next_micro = fate.early && last_done_->backward;
        }
        last_done_.reset();
        return;
      }
      case UnitEvent::What::done:
        // The root is around all units and is done after the last one.
        if (!last_done_ || !event.unit.empty() || event.backward) last_done_ = event;
        return;
      case UnitEvent::What::drop:
        for (auto& [unit, all] : open_) {
          for (const std::size_t place : all) fates_[place].dropped = true;
          all.clear();
        }
        return;
    }
  }

  /// Whether between two moments of the host nothing with parameters was launched.
  bool computes_nothing(std::int64_t from, std::int64_t to) const {
    for (std::size_t i = 0; i < rank_.device.size(); ++i) {
      const DeviceRow& row = rank_.device[i];
      const std::int64_t at = launched_ns(rank_, static_cast<std::int32_t>(i));
      if (row.kind != Activity::computation || at < from || at >= to) continue;
      const KernelKind kind = kernel_kind(row.kind, rank_.names[row.name], std::nullopt);
      if (kind == KernelKind::products || kind == KernelKind::attention || kind == KernelKind::other) return false;
    }
    return true;
  }

  const RankRows& rank_;
  std::map<std::string, std::vector<std::size_t>> open_;  // by unit, gathers that nothing has used so far
  std::size_t step_ = 0;
  std::optional<UnitEvent> last_done_;  // nothing was used since
  std::vector<Fate> fates_;
};

/// "FSDP::all_gather_copy_out (layers.0)": "layers.0"; "" for the root's. Nothing: another range.
std::optional<std::string> unit_in(std::string_view name, std::string_view range) {
  if (range.empty() || !name.starts_with(range)) return std::nullopt;
  name.remove_prefix(range.size());
  if (name.empty()) return std::string();
  if (!name.starts_with(" (") || !name.ends_with(")")) return std::nullopt;
  return std::string(name.substr(2, name.size() - 3));
}

std::vector<UnitEvent> events_of(const JobTrace& job, const Recognition& found, const dialects::TraceNames& names) {
  const RankRows& rank = job.ranks.front();
  using Event = UnitEvent::What;
  std::vector<UnitEvent> events;
  for (std::size_t step = 0; step < found.ranks.front().uses.size(); ++step) {
    for (const CollectiveUse& use : found.ranks.front().uses[step]) {
      if (use.purpose != Purpose::parameters || use.unit < 0) continue;
      const std::string& label = found.table.units[use.unit].label;
      events.push_back({Event::gather, launched_ns(rank, use.row), label == "root" ? "" : label, &use, false, step});
    }
  }
  for (const HostRow& row : rank.host) {
    if (row.kind != HostWork::annotation) continue;
    const std::string& name = rank.names[row.name];
    if (const auto used = unit_in(name, names.copy_out)) events.push_back({Event::use, row.begin_ns, *used});
    if (const auto done = unit_in(name, names.after_forward)) events.push_back({Event::done, row.end_ns, *done});
    if (const auto done = unit_in(name, names.after_backward)) {
      events.push_back({Event::done, row.end_ns, *done, nullptr, true});
    }
    if (!names.drops_gathers.empty() && name.starts_with(names.drops_gathers)) {
      events.push_back({Event::drop, row.begin_ns, {}});
    }
  }
  std::ranges::stable_sort(events, {}, &UnitEvent::at_ns);
  return events;
}

/// Bytes that a rank sends for a gather: its part, to all others of the group; -1: not told.
std::int64_t sent_bytes(const RankRows& rank, const Recognition& found, const CollectiveUse& use) {
  std::int64_t ranks = use.group < 0 ? -1 : rank.groups[use.group].size;
  if (ranks <= 0 && found.mesh_told) ranks = found.facts.shard;
  return use.bytes > 0 && ranks > 0 ? use.bytes / ranks * (ranks - 1) : -1;
}

void add_gather(UnusedGathers one, const RankRows& rank, const Recognition& found, const CollectiveUse& use,
                const std::string& unit, std::vector<UnusedGathers>& all) {
  const DeviceRow& row = rank.device[use.row];
  auto same =
      std::ranges::find_if(all, [&](const UnusedGathers& o) { return o.waste == one.waste && o.why == one.why; });
  if (same == all.end()) {
    one.bytes = 0;
    same = all.insert(all.end(), std::move(one));
  }
  const std::int64_t bytes = sent_bytes(rank, found, use);
  same->bytes = bytes < 0 || same->bytes < 0 ? -1 : same->bytes + bytes;
  same->ms += static_cast<double>(row.end_ns - row.begin_ns) / 1e6;
  ++same->gathers;
  if (std::ranges::find(same->units, unit) == same->units.end()) same->units.push_back(unit);
}

const dialects::Remedies& remedies_of(const Recognition& found) {
  const bool has = found.engine != nullptr && found.engine->remedies;
  return *(has ? *found.engine : dialects::words_of("fsdpbench")).remedies;
}

std::string as_remedy(std::string_view words) {
  return words.empty() ? "this engine has no setting for it that is known here" : std::string(words);
}

/// How a wasted gather came about, by the ranges around it.
void explain_waste(UnusedGathers& one, const CollectiveUse& gather, bool next_micro, std::string_view around,
                   const Recognition& found) {
  const dialects::Remedies& words = remedies_of(found);
  if (one.waste == Waste::freed_early) {
    one.why = next_micro ? schedule::why_wasted::kFreedBetweenMicrobatches : schedule::why_wasted::kFreedAfterForward;
    one.remedy = as_remedy(next_micro ? words.keep_after_backward : words.keep_after_forward);
  } else if (around == "forward" && gather.phase == Phase::backward) {
    one.why = schedule::why_wasted::kReentrant;
    one.remedy = as_remedy(words.no_reentrant);
  } else if (!around.empty()) {
    one.why = fmt::format("the {} prefetch brings it before its turn, and it is dropped unused", around);
    one.remedy = as_remedy(words.prefetch_less);
  } else {
    one.why = "it is gathered, and dropped without having been copied out";
    one.remedy = as_remedy(words.prefetch_less);
  }
}

UnusedGathersFound by_ranges(const JobTrace& job, const Recognition& found, const dialects::TraceNames& names) {
  const RankRows& rank = job.ranks.front();
  const HostWords host_words(rank);
  const std::vector<UnitEvent> events = events_of(job, found, names);
  UnusedGathersFound result;
  if (std::ranges::none_of(events, [](const UnitEvent& e) { return e.what == UnitEvent::What::use; })) {
    result.unknown = fmt::format("Whether each all-gather was used: no range {} is in the trace.", names.copy_out);
    return result;
  }
  const RangeFollower followed(rank, events);
  const std::vector<CollectiveUse>& step = found.ranks.front().uses[found.reference_step];
  const auto in_step = [&](const Fate& fate) {
    return fate.gather >= step.data() && fate.gather < step.data() + step.size();
  };
  const auto all = followed.fates();
  for (auto fate = all.begin(); fate != all.end(); ++fate) {
    if (!in_step(*fate) || (!fate->dropped && !fate->early)) continue;
    UnusedGathers one;
    std::string_view around;
    const std::int32_t launch = rank.device[fate->gather->row].launch;
    if (!names.forward_prefetch.empty() && host_words.around(launch, names.forward_prefetch) >= 0) around = "forward";
    if (!names.backward_prefetch.empty() && host_words.around(launch, names.backward_prefetch) >= 0)
      around = "backward";
    if (fate->dropped) {
      const bool again = std::any_of(fate + 1, all.end(), [&](const Fate& later) {
        return later.unit == fate->unit && in_step(later) && later.used_ns >= 0;
      });
      one.waste = again ? Waste::used_once : Waste::never_used;
      one.evidence = fmt::format("no range {} of it until {}", names.copy_out, names.drops_gathers);
    } else {
      one.waste = Waste::freed_early;
      one.evidence =
          fmt::format("between {} and the next {} neither another unit nor a matrix product or attention ran",
                      fate->next_micro ? names.after_backward : names.after_forward, names.copy_out);
    }
    explain_waste(one, *fate->gather, fate->next_micro, around, found);
    add_gather(std::move(one), rank, found, *fate->gather, fate->unit.empty() ? "root" : fate->unit, result.all);
  }
  return result;
}

/// The wasted gathers of the schedule that the job has op by op.
UnusedGathersFound by_schedule(const JobTrace& job, const Recognition& found) {
  UnusedGathersFound result;
  const RankRows& rank = job.ranks.front();
  std::vector<const CollectiveUse*> gathers;
  for (const CollectiveUse& use : found.ranks.front().uses[found.reference_step]) {
    if (use.purpose == Purpose::parameters) gathers.push_back(&use);
  }
  try {
    const schedule::Training made = training_of(*found.schedule);
    const schedule::Schedule& steady = made.schedules.steady();
    for (const schedule::WastedGather& wasted : schedule::wasted_gathers(made.plan, steady)) {
      const auto before = [&](schedule::OpKind kind) {
        return std::count_if(steady.ops.begin(), steady.ops.begin() + wasted.op,
                             [&](const schedule::Op& op) { return op.kind == kind; });
      };
      const auto place = static_cast<std::size_t>(before(schedule::OpKind::all_gather));
      if (place >= gathers.size()) continue;
      UnusedGathers one;
      one.waste = wasted.waste;
      one.evidence = fmt::format("the job launches op by op what {} does", found.schedule->config.fsdp.preset);
      const bool next_micro = steady.ops[wasted.op].phase == Phase::forward;
      explain_waste(one, *gathers[place], next_micro, {}, found);
      const int unit = table_unit(found.table, wasted.unit);
      add_gather(std::move(one), rank, found, *gathers[place], unit < 0 ? "root" : found.table.units[unit].label,
                 result.all);
    }
  } catch (const ConfigError& error) {
    result.unknown = fmt::format("Whether each all-gather was used: {}", error.what());
  }
  return result;
}

}  // namespace

UnusedGathersFound find_unused_gathers(const JobTrace& job, const Recognition& found) {
  if (!found.shards || found.ranks.empty() || found.ranks.front().cut.steps.empty()) return {};
  UnusedGathersFound result;
  if (found.table.source == UnitSource::annotations && found.engine != nullptr &&
      !found.engine->traces.copy_out.empty()) {
    result = by_ranges(job, found, found.engine->traces);
  } else if (found.schedule && found.schedule->exact() && found.schedule->distance == 0) {
    result = by_schedule(job, found);
  } else {
    result.unknown =
        "Whether each all-gather was used: the trace has no ranges of what is copied out of gathers, and the job "
        "follows no schedule that is known here op by op.";
  }
  std::ranges::stable_sort(result.all, std::greater<>(), &UnusedGathers::gathers);
  return result;
}

}  // namespace fsdpbench::foreign
