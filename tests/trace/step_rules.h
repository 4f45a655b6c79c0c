#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/intervals.h"
#include "trace/event_reader.h"
#include "trace/findings.h"

namespace fsdpbench::trace {

/// The rules of the merged file: what it says of steps, of the time without computation, of memory and of what needed
/// what adds up to the nanosecond and the byte. Only whole files that say fsdpbench_schema are looked at, and in them
/// only what is there: a file that explains no step at all passes.
class StepRules {
 public:
  explicit StepRules(Findings& findings) : findings_(findings) {}

  /// In the order of the file.
  void event(const ParsedEvent& event);
  /// After the last event.
  void finish(const FileFacts& file);

 private:
  struct Slice {
    Interval time;
    std::int64_t event = 0;
  };
  struct Step : Slice {
    std::optional<std::int64_t> kept_bytes;
    std::int64_t host_end = 0;  ///< the host frees what it alone used
  };
  struct Level {
    std::int64_t time_ns, bytes, event;
  };
  /// A process of the file.
  struct Rank {
    std::vector<Step> steps;
    std::vector<Slice> computation, exposed, bounds;
    std::vector<Level> levels;
  };
  struct Op : Slice {
    bool communicates = false;
    bool computes = false;  ///< the device, or the host
  };
  struct ArrowEnd {
    std::int64_t time_ns, event;
    bool begins = false, of_need = false;
  };
  /// A lane.
  struct OpTrack {
    std::vector<Op> ops;
    std::vector<ArrowEnd> arrows;
  };
  using TrackKey = std::pair<std::int64_t, std::int64_t>;

  void slice(const ParsedEvent& event, TrackKey track, std::int64_t begin_ns);
  void arrow(const ParsedEvent& event, TrackKey track, std::int64_t time_ns, bool begins);
  void check_exposed(Rank& rank);
  void check_bounds(const Rank& rank);
  void check_memory(Rank& rank);
  void check_arrows(OpTrack& track);

  Findings& findings_;
  std::map<std::int64_t, Rank> ranks_;
  std::map<TrackKey, OpTrack> tracks_;
};

}  // namespace fsdpbench::trace
