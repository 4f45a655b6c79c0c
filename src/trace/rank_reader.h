#pragma once

#include <string>

#include "trace/record.h"

namespace fsdpbench::trace {

/// Reads back what a RankWriter wrote (FORMAT.md, "The file of a rank"), with or without a device's profiler: rank,
/// windows and records, to the nanosecond. Memory samples and activities are left out, and a window ends when the host
/// was done with the step. Times count from the file's 0 plus one nanosecond, so that no begin is 0. Throws ConfigError
/// that names file and event if it is no such file, or is damaged.
RankTrace read_rank_trace(const std::string& path);

}  // namespace fsdpbench::trace
