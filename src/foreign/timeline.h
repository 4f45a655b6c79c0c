#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/explain.h"
#include "foreign/job_trace.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// The ranks that a timeline shows, as places in the job, sorted: all of a few; else the first, the slowest, the one
/// that others waited for, then the lowest, until there are kMostShownRanks.
std::vector<std::size_t> shown_ranks(const Explanation& explained);
inline constexpr std::size_t kMostShownRanks = 16;

/// The ranks of a job in one file for Perfetto and chrome://tracing, on the first rank's clock: every row of the device
/// on its stream, what the host did for collectives, and why nothing was computed, moment by moment. See
/// trace/FORMAT.md, "The timeline of another program". The file appears whole or not at all. Throws OutputError.
void write_timeline(const std::string& path, const JobTrace& job, const Recognition& found,
                    const Explanation& explained);

}  // namespace fsdpbench::foreign
