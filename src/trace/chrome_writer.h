#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace/record.h"

namespace fsdpbench::trace {

/// How one op is shown: what the writer cannot know from a record.
struct OpLabel {
  std::string name;      ///< "all_gather 3*"
  std::string category;  ///< "computation", "communication", "copy" or "host"
  std::string unit;
  std::string phase;
  Lane lane = Lane::compute;
  bool host = false;        ///< blocks the host
  std::int64_t bytes = 0;   ///< of a collective's message; 0: not shown
};

/// Writes one Chrome trace (Perfetto, chrome://tracing) of all ranks: a process a rank, a track a lane and one for
/// the host, memory counters. See FORMAT.md. `label(step, op)` describes ops; times are relative to the first step.
/// The file appears whole or not at all (written beside, then renamed). Throws OutputError.
void write_chrome_trace(const std::string& path, const std::vector<RankTrace>& ranks,
                        const std::function<OpLabel(std::int32_t step, std::int32_t op)>& label);

}  // namespace fsdpbench::trace
