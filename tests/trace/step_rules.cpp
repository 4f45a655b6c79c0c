#include "trace/step_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "trace/fields.h"
#include "trace/record.h"

namespace fsdpbench::trace {
namespace {

std::optional<std::int64_t> time_of(const Value* value) {
  return value != nullptr ? nanoseconds(*value) : std::nullopt;
}

std::optional<std::int64_t> integer_of(const Value* value) {
  return value != nullptr && value->is_integer() ? std::optional(value->integer) : std::nullopt;
}

/// Nanoseconds as traces show them.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03} us", ns / 1000, ns % 1000); }

}  // namespace

void StepRules::event(const ParsedEvent& event) {
  const std::string_view ph = event.ph;
  const auto pid = integer_of(event.member(field::kPid.name));
  const auto time = event.begin_ns;
  if (!pid || !time) return;  // reported by TrackRules
  if (ph == "C" && event.name == "live bytes") {
    Level level{*time, 0, event.index};
    for (const auto& [name, value] : event.args) level.bytes += value.is_integer() ? value.integer : 0;
    ranks_[*pid].levels.push_back(level);
    return;
  }
  const auto tid = integer_of(event.member(field::kTid.name));
  if (!tid) return;
  if (ph == "X") slice(event, {*pid, *tid}, *time);
  if (ph == "s" || ph == "f") arrow(event, {*pid, *tid}, *time, ph == "s");
}

void StepRules::slice(const ParsedEvent& event, TrackKey track, std::int64_t begin_ns) {
  const std::string_view category = event.category;
  const auto length = event.length_ns;
  if (!length || *length < 0) return;  // reported by TrackRules
  const Slice slice{{begin_ns, begin_ns + *length}, event.index};
  const bool computes = category == "computation", communicates = category == "communication";
  if (computes || communicates || category == "copy") {
    const bool on_host = track.second == tid_of(Lane::host_compute);
    tracks_[track].ops.push_back({slice, communicates, computes || on_host});
  }
  if (computes) ranks_[track.first].computation.push_back(slice);
  if (category == "exposed") ranks_[track.first].exposed.push_back(slice);
  if (category == "bound") {
    ranks_[track.first].bounds.push_back(slice);
    if (!time_of(event.arg(field::kBound.name)) || event.arg(field::kBoundLane.name) == nullptr) {
      findings_.add(Rule::bound, event.index, "A bound has no bound_us, or no lane.");
    }
  }
  if (category != "step") return;
  Step step{slice, integer_of(event.arg(field::kKept.name)), slice.time.end};
  // The host may be done later than the lanes, with which the step ends.
  if (const auto counted = time_of(event.arg(field::kStepLength.name))) step.time.end = begin_ns + *counted;
  ranks_[track.first].steps.push_back(step);
}

void StepRules::arrow(const ParsedEvent& event, TrackKey track, std::int64_t time_ns, bool begins) {
  const std::string_view category = event.category;
  const bool of_need = category == "needed";
  if (!of_need && (category != "issue" || begins)) return;
  tracks_[track].arrows.push_back({time_ns, event.index, begins, of_need});
}

void StepRules::check_exposed(Rank& rank) {
  struct Part : Slice {
    bool exposed;
  };
  std::vector<Part> parts;
  for (const Slice& slice : rank.computation) parts.push_back({slice, false});
  for (const Slice& slice : rank.exposed) parts.push_back({slice, true});
  std::erase_if(parts, [](const Part& part) { return part.time.begin == part.time.end; });
  std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.time.begin; });
  auto part = parts.begin();
  const auto outside = [&](const Part& one) {
    if (one.exposed) findings_.add(Rule::exposed, one.event, "An exposed slice lies outside the steps of its process.");
  };
  std::int64_t computed_until = std::numeric_limits<std::int64_t>::min();  // of all so far: it may reach into the step
  for (const Step& step : rank.steps) {
    for (; part != parts.end() && part->time.begin < step.time.begin; ++part) {
      outside(*part);
      if (!part->exposed) computed_until = std::max(computed_until, part->time.end);
    }
    std::int64_t explained = std::max(step.time.begin, computed_until), exposed_until = step.time.begin;
    const auto hole = [&](std::int64_t until) {
      if (until <= explained) return;
      findings_.add(Rule::exposed, step.event,
                    fmt::format("In this step nothing is computed from {} on for {}, and no exposed slice says why.",
                                microseconds(explained), microseconds(until - explained)));
    };
    for (; part != parts.end() && part->time.begin < step.time.end; ++part) {
      const std::int64_t taken = part->exposed ? explained : exposed_until;
      if (part->time.begin < taken) {
        findings_.add(Rule::exposed, part->event,
                      fmt::format("For {} this slice stands beside {}.", microseconds(taken - part->time.begin),
                                  part->exposed ? "a computation or another exposed slice" : "an exposed slice"));
      }
      hole(std::min(part->time.begin, step.time.end));
      explained = std::max(explained, part->time.end);
      if (!part->exposed) computed_until = std::max(computed_until, part->time.end);
      if (part->exposed) exposed_until = std::max(exposed_until, part->time.end);
    }
    if (exposed_until > step.time.end) {
      findings_.add(
          Rule::exposed, step.event,
          fmt::format("An exposed slice ends {} after this step.", microseconds(exposed_until - step.time.end)));
    }
    hole(step.time.end);
  }
  for (; part != parts.end(); ++part) outside(*part);
}

void StepRules::check_bounds(const Rank& rank) {
  for (const Slice& bound : rank.bounds) {
    const auto step =
        std::ranges::lower_bound(rank.steps, bound.time.begin, {}, [](const Step& s) { return s.time.begin; });
    if (step == rank.steps.end() || step->time.begin != bound.time.begin) {
      findings_.add(Rule::bound, bound.event, "A bound does not begin with a step of its process.");
    } else if (bound.time.end > step->time.end) {
      findings_.add(Rule::bound, bound.event,
                    fmt::format("A bound ends {} after its step, event {}.",
                                microseconds(bound.time.end - step->time.end), step->event));
    }
  }
  if (rank.bounds.size() != rank.steps.size()) {
    findings_.add(
        Rule::bound, rank.steps.empty() ? rank.bounds.front().event : rank.steps.front().event,
        fmt::format("A process has {} steps and {} bounds; each step has one.", rank.steps.size(), rank.bounds.size()));
  }
}

void StepRules::check_memory(Rank& rank) {
  std::ranges::stable_sort(rank.levels, {}, &Level::time_ns);
  for (const Step& step : rank.steps) {
    if (!step.kept_bytes) continue;
    const auto [at_end, after] = std::ranges::equal_range(rank.levels, step.host_end, {}, &Level::time_ns);
    if (after == rank.levels.begin()) {
      findings_.add(Rule::memory, step.event,
                    "The step has kept_bytes, but no counter \"live bytes\" stands before its end.");
      continue;
    }
    // The next step may begin, and allocate, in the same nanosecond: then the level before that may be this step's
    // last.
    const bool goes_on =
        std::ranges::binary_search(rank.steps, step.host_end, {}, [](const Step& s) { return s.time.begin; });
    const auto first = at_end == after || (goes_on && at_end != rank.levels.begin()) ? at_end - 1 : at_end;
    if (std::any_of(first, after, [&](const Level& level) { return level.bytes == *step.kept_bytes; })) continue;
    findings_.add(Rule::memory, step.event,
                  fmt::format("The counter \"live bytes\" ends the step at {} (event {}), its kept_bytes are {}.",
                              (after - 1)->bytes, (after - 1)->event, *step.kept_bytes));
  }
}

void StepRules::check_arrows(OpTrack& track) {
  std::ranges::stable_sort(track.ops, {}, [](const Op& op) { return op.time.begin; });
  for (const ArrowEnd& arrow : track.arrows) {
    const auto [first, after] =
        std::ranges::equal_range(track.ops, arrow.time_ns, {}, [](const Op& op) { return op.time.begin; });
    if (!arrow.begins) {
      const bool ends_well =
          std::any_of(first, after, [&](const Op& op) { return !arrow.of_need || op.computes || op.communicates; });
      if (!ends_well) {
        findings_.add(
            Rule::op_arrow, arrow.event,
            arrow.of_need
                ? "An arrow \"needed\" ends where no computation, no collective and no work of the host begins."
                : "An arrow \"issue\" ends where no op begins.");
      }
      continue;
    }
    // The first of the ops that begin there may have taken no time: each may be the one that is meant.
    const bool inside = first != after ? std::any_of(first, after, [](const Op& op) { return op.communicates; })
                                       : first != track.ops.begin() && (first - 1)->communicates &&
                                             arrow.time_ns < (first - 1)->time.end;
    if (!inside) findings_.add(Rule::op_arrow, arrow.event, "An arrow \"needed\" begins in no collective.");
  }
}

void StepRules::finish(const FileFacts& file) {
  if (!file.has_schema || !file.whole) return;
  const bool explained = std::ranges::any_of(ranks_, [](const auto& rank) { return !rank.second.exposed.empty(); });
  const bool bounded = std::ranges::any_of(ranks_, [](const auto& rank) { return !rank.second.bounds.empty(); });
  for (auto& [pid, rank] : ranks_) {
    std::ranges::stable_sort(rank.steps, {}, [](const Step& step) { return step.time.begin; });
    if (explained) check_exposed(rank);
    if (bounded) check_bounds(rank);
    check_memory(rank);
  }
  for (auto& [key, track] : tracks_) check_arrows(track);
}

}  // namespace fsdpbench::trace
