#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foreign/job_trace.h"
#include "foreign/recognise.h"
#include "schedule/wasted_gathers.h"

namespace fsdpbench::foreign {

/// All-gathers of a job that are wasted in the same way: in the step that recognition looked at, of the first rank.
struct UnusedGathers {
  schedule::Waste waste = schedule::Waste::never_used;
  std::vector<std::string> units;  ///< labels, in the order of the first of each
  int gathers = 0;
  std::int64_t bytes = -1;            ///< that a rank sends for them; -1: sizes or groups are not told
  double ms = 0;                      ///< that they take
  std::string evidence, why, remedy;  ///< each without its full stop; the remedy in the words of the job's engine
};

struct UnusedGathersFound {
  std::vector<UnusedGathers> all;  ///< the most gathers first
  std::string unknown;             ///< a sentence: why nothing can be said; empty: the job was looked through
};

/// Unused gathers by the engine's own ranges: a gather that no copy out of it follows until
/// the engine drops it was not used; one whose unit had been used last, with neither another unit's use nor a matrix
/// product or attention between, brings what was there already. An engine without such ranges: the schedule that the
/// job follows op by op. Neither: `unknown`.
UnusedGathersFound find_unused_gathers(const JobTrace& job, const Recognition& found);

}  // namespace fsdpbench::foreign
