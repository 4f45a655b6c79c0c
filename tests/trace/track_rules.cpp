#include "trace/track_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "trace/fields.h"

namespace fsdpbench::trace {
namespace {

constexpr std::string_view kPhases = "XiMCstf";  // that we write, and PyTorch's profiler
constexpr std::int64_t kMostId = std::numeric_limits<std::uint32_t>::max();

}  // namespace

std::optional<TrackRules::TrackKey> TrackRules::track_of(const ParsedEvent& event, bool needs_tid) {
  if (event.category == "Trace") return std::nullopt;  // kineto's bars, with texts for both
  const std::optional<std::int64_t> pid = id_of(event.member(field::kPid.name));
  if (!pid) {
    findings_.add(
        Rule::process, event.index,
        "pid is missing or neither a text nor an integer from 0 to 2^32 - 1; Perfetto would show the event in "
        "process 0.");
    return std::nullopt;
  }
  if (!needs_tid) return TrackKey{*pid, 0};
  const std::optional<std::int64_t> tid = id_of(event.member(field::kTid.name));
  if (!tid) {
    findings_.add(Rule::track, event.index, "tid is missing or neither a text nor an integer from 0 to 2^32 - 1.");
    return std::nullopt;
  }
  if (*tid == 0 && *pid != 0) {
    findings_.add(Rule::track, event.index, "tid is 0, which Perfetto takes for the process itself; use 1 or more.");
  }
  return TrackKey{*pid, *tid};
}

std::optional<std::int64_t> TrackRules::id_of(const Value* id) {
  if (id == nullptr) return std::nullopt;
  if (id->is_text() && !id->text.empty()) {  // viewers give each text a number of its own
    const auto next = kMostId + 1 + static_cast<std::int64_t>(track_texts_.size());
    return track_texts_.try_emplace(std::string(id->text), next).first->second;
  }
  if (!id->is_integer() || id->integer < 0 || id->integer > kMostId) return std::nullopt;
  return id->integer;
}

void TrackRules::event(const ParsedEvent& event) {
  const std::string_view ph = event.ph;
  if (ph.size() != 1 || kPhases.find(ph[0]) == std::string_view::npos) {
    findings_.add(Rule::phase, event.index, "ph is missing or no letter that a trace of ours has.");
    return;
  }
  if (ph == "M") return metadata(event);
  if (event.name.empty() && event.member(field::kName.name) == nullptr) {
    findings_.add(Rule::structure, event.index, "The event has no name.");
  }
  const std::optional<std::int64_t> time = event.begin_ns;
  if (!time) {
    findings_.add(Rule::number, event.index, "ts is missing or not a number of microseconds.");
    return;
  }
  const std::string_view scope = event.text(field::kScope.name);
  const bool instant = ph == "i";
  if (instant && !scope.empty() && scope != "g" && scope != "p" && scope != "t") {
    findings_.add(Rule::instant, event.index, "s of an instant is not \"g\", \"p\" or \"t\".");
  }
  const bool on_process = ph == "C" || (instant && (scope == "g" || scope == "p"));
  const auto key = track_of(event, !on_process);
  if (!key) return;
  switch (ph[0]) {
    case 'X': {
      const std::optional<std::int64_t> length = event.length_ns;
      if (!length || *length < 0) {
        findings_.add(Rule::duration, event.index, "dur is missing, not a number of microseconds, or negative.");
        return;
      }
      tracks_[*key].slices.push_back({*time, *time + *length, event.index});
      return;
    }
    case 's':
    case 't':
    case 'f': return flow(event, ph[0], *time, tracks_[*key]);
    case 'C': return counter(event, *time, key->first);
    default: return;
  }
}

TrackRules::FlowKey TrackRules::flow_key(const ParsedEvent& event, const Value& id) {
  constexpr std::size_t kMostKinds = 8;  // files have one or two
  const std::string_view category = event.category, name = event.name;
  const auto number_of = [&](std::string text) {
    return flow_texts_.try_emplace(std::move(text), static_cast<std::int64_t>(flow_texts_.size())).first->second;
  };
  FlowKey key;
  const auto known = std::ranges::find_if(
      flow_kinds_, [&](const auto& kind) { return kind.first == category && kind.second == name; });
  key.kind = known - flow_kinds_.begin();
  if (known == flow_kinds_.end()) {
    if (flow_kinds_.size() < kMostKinds) {
      flow_kinds_.emplace_back(category, name);
    } else {
      key.kind = kMostKinds + number_of(fmt::format("{}\n{}", category, name));
    }
  }
  // A number or the same number as a text; of others, and of those that do not fit, the text itself.
  const char* const end = id.text.data() + id.text.size();
  const auto [stopped, error] = std::from_chars(id.text.data(), end, key.id);
  const bool plain =
      error == std::errc{} && stopped == end && key.id >= 0 && (id.text.size() == 1 || id.text[0] != '0');
  if (!plain) key.id = -1 - number_of(std::string(id.text));
  return key;
}

void TrackRules::flow(const ParsedEvent& event, char ph, std::int64_t time_ns, TrackSlices& track) {
  const Value* id = event.member(field::kId.name);
  if (id == nullptr || (!id->is_integer() && !id->is_text())) {
    findings_.add(Rule::flow_id, event.index, "An arrow's end has no id.");
    return;
  }
  track.flows.push_back({time_ns, event.index, ph, event.text(field::kBp.name) == "e"});
  Flow& flow = flows_[flow_key(event, *id)];
  if (ph == 's') {
    if (flow.start >= 0) {
      findings_.add(Rule::flow_id, event.index,
                    fmt::format("The arrow of event {} has the same category, name and id.", flow.start));
      return;
    }
    flow.start = event.index;
    flow.start_ns = time_ns;
  } else if (flow.end < 0 || time_ns < flow.first_end_ns) {
    flow.end = event.index;
    flow.first_end_ns = time_ns;
  }
}

void TrackRules::counter(const ParsedEvent& event, std::int64_t time_ns, std::int64_t pid) {
  const auto is_number = [](const auto& arg) { return arg.second.is_number(); };
  if (event.args.empty() || !std::ranges::all_of(event.args, is_number)) {
    findings_.add(Rule::counter, event.index, "A counter's args are missing or not all numbers.");
  }
  const Value* id = event.member(field::kId.name);
  const std::string key = fmt::format("{}\n{}\n{}", pid, event.name, id != nullptr ? id->text : std::string_view());
  const auto [last, fresh] = counters_.try_emplace(key, time_ns, event.index);
  if (!fresh && time_ns < last->second.first) {
    findings_.add(Rule::counter_order, event.index,
                  fmt::format("The counter goes back in time: event {} of it is later.", last->second.second));
  }
  last->second = {time_ns, event.index};
}

void TrackRules::metadata(const ParsedEvent& event) {
  const std::string_view name = event.name;
  const bool names = name == "process_name" || name == "thread_name";
  const bool sorts = name == "process_sort_index" || name == "thread_sort_index";
  const Value* value = event.arg(names ? field::kTrackName.name : field::kSortIndex.name);
  if (names && (value == nullptr || !value->is_text())) {
    findings_.add(Rule::metadata, event.index, fmt::format("{} has no args.name.", name));
  } else if (sorts && (value == nullptr || !value->is_number())) {
    findings_.add(Rule::metadata, event.index, fmt::format("{} has no number args.sort_index.", name));
  } else if (name.empty()) {
    findings_.add(Rule::metadata, event.index, "A metadata event has no name.");
  }
}

void TrackRules::check_nesting(std::vector<Slice>& slices) {
  std::ranges::sort(slices, [](const Slice& a, const Slice& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns
           : a.end_ns != b.end_ns   ? a.end_ns > b.end_ns
                                    : a.event < b.event;
  });
  std::vector<const Slice*> open;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back()->end_ns <= slice.begin_ns) open.pop_back();
    if (!open.empty() && open.back()->end_ns < slice.end_ns) {
      findings_.add(Rule::nesting, slice.event,
                    fmt::format("The slice begins inside that of event {} and ends {} ns after it; slices of one track "
                                "must nest.",
                                open.back()->event, slice.end_ns - open.back()->end_ns));
      continue;
    }
    open.push_back(&slice);
  }
}

void TrackRules::check_flow_points(const TrackSlices& track) {
  const std::vector<Slice>& slices = track.slices;  // sorted by begin
  std::vector<std::int64_t> latest_end;
  for (const Slice& slice : slices) {
    latest_end.push_back(latest_end.empty() ? slice.end_ns : std::max(latest_end.back(), slice.end_ns));
  }
  for (const FlowPoint& point : track.flows) {
    const auto after = std::ranges::upper_bound(slices, point.time_ns, {}, &Slice::begin_ns);
    const auto count = static_cast<std::size_t>(after - slices.begin());
    const bool begins_here = count > 0 && slices[count - 1].begin_ns == point.time_ns;
    const bool inside = begins_here || (count > 0 && latest_end[count - 1] > point.time_ns);
    if (point.ph == 's' && !inside) {
      findings_.add(Rule::flow_slice, point.event, "An arrow begins where its track has no slice.");
    } else if (point.ph == 'f' && point.enclosing && !inside) {
      findings_.add(Rule::flow_slice, point.event, "An arrow ends where its track has no slice.");
    } else if (point.ph == 'f' && !point.enclosing && begins_here) {
      findings_.add(
          Rule::flow_slice, point.event,
          "An arrow that ends where a slice begins goes to the next slice; bp \"e\" would bind it to this one.");
    }
  }
}

void TrackRules::check_flows() {
  for (const auto& [key, flow] : flows_) {
    if (flow.start < 0) {
      findings_.add(Rule::flow_pair, flow.end, "An arrow ends that nowhere began.");
    } else if (flow.end < 0) {
      findings_.add(Rule::flow_pair, flow.start, "An arrow begins that nowhere ends.");
    } else if (flow.first_end_ns < flow.start_ns) {
      findings_.add(Rule::flow_order, flow.end,
                    fmt::format("The arrow ends {} ns before it begins.", flow.start_ns - flow.first_end_ns));
    }
  }
}

void TrackRules::finish() {
  for (auto& [key, track] : tracks_) {
    check_nesting(track.slices);
    check_flow_points(track);
  }
  check_flows();
}

}  // namespace fsdpbench::trace
