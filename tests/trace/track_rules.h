#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/event_reader.h"
#include "trace/findings.h"

namespace fsdpbench::trace {

/// The rules of the timeline: what chrome://tracing and Perfetto need to show every slice, arrow and counter. Keeps
/// a few tens of bytes an event.
class TrackRules {
 public:
  explicit TrackRules(Findings& findings) : findings_(findings) {}

  /// In the order of the file.
  void event(const ParsedEvent& event);
  /// After the last event.
  void finish();

 private:
  struct Slice {
    std::int64_t begin_ns, end_ns, event;
  };
  struct FlowPoint {
    std::int64_t time_ns, event;
    char ph;
    bool enclosing;  // bp is "e"
  };
  struct TrackSlices {
    std::vector<Slice> slices;
    std::vector<FlowPoint> flows;
  };
  struct Flow {
    std::int64_t start = -1, start_ns = 0, end = -1;  // events
    std::int64_t first_end_ns = 0;
  };
  using TrackKey = std::pair<std::int64_t, std::int64_t>;
  /// Key by which arrows are the same: category and name, as a number, and id.
  struct FlowKey {
    std::int64_t kind = 0, id = 0;
    bool operator==(const FlowKey&) const = default;
  };
  struct FlowKeyHash {
    std::size_t operator()(const FlowKey& key) const {
      return static_cast<std::size_t>(key.id) * 8 + static_cast<std::size_t>(key.kind);
    }
  };

  std::optional<TrackKey> track_of(const ParsedEvent& event, bool needs_tid);
  /// Number of a process or thread; nothing if it is no id.
  std::optional<std::int64_t> id_of(const Value* id);
  FlowKey flow_key(const ParsedEvent& event, const Value& id);
  void flow(const ParsedEvent& event, char ph, std::int64_t time_ns, TrackSlices& track);
  void counter(const ParsedEvent& event, std::int64_t time_ns, std::int64_t pid);
  void metadata(const ParsedEvent& event);
  void check_nesting(std::vector<Slice>& slices);
  void check_flow_points(const TrackSlices& track);
  void check_flows();

  Findings& findings_;
  std::map<TrackKey, TrackSlices> tracks_;
  std::unordered_map<std::string, std::int64_t> track_texts_;  // of ids that are texts, beyond all numbers
  std::unordered_map<std::string, std::pair<std::int64_t, std::int64_t>> counters_;  // last time, its event
  std::unordered_map<FlowKey, Flow, FlowKeyHash> flows_;
  std::vector<std::pair<std::string, std::string>> flow_kinds_;  // category and name: the first of them
  std::unordered_map<std::string, std::int64_t> flow_texts_;     // what else of keys is no number, under one
};

}  // namespace fsdpbench::trace
