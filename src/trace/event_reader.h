#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>

#include "trace/findings.h"
#include "trace/parsed_event.h"

namespace fsdpbench::trace {

/// What a file says outside its events.
struct FileFacts {
  bool has_events = false;            ///< there is a traceEvents list, or the file is one
  bool has_distributed_info = false;
  std::optional<std::int64_t> rank;   ///< of distributedInfo, if it is an integer
  std::optional<std::int64_t> searched_rank;  ///< what HTA's search of the text finds
  std::int64_t events = 0;
  std::uint64_t bytes = 0;
};

/// Reads a Chrome trace, an object with traceEvents or a list of events, and hands on one event at a time; the memory
/// it takes does not grow with their number. Reports what breaks the rules json, structure and limit.
FileFacts read_events(std::istream& in, std::int64_t most_events, Findings& findings,
                      const std::function<void(const ParsedEvent&)>& event);

}  // namespace fsdpbench::trace
