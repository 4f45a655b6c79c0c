#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "foreign/matched_collectives.h"
#include "foreign/recognise.h"
#include "plan/module_sizes.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::foreign {

/// A job's rows as if an executor of ours had recorded them.
struct AdoptedRun {
  std::vector<trace::RankTrace> traces;  ///< by rank, with the same steps, all of the steady schedule; may be empty
  std::size_t left_out = 0;              ///< steps whose collectives are not launched as in the schedule
};

/// What `found.schedule` was matched with, on its schedules.
///
/// [Note: whose time a row is]
/// Collectives are one op each. Computation between two of them is that of the ops which the schedule has there: a row
/// an op where there are as many, else rows are dealt out in order, by FLOPs. Copies, casts and updates likewise, by
/// their names. An op that no row is for takes no time, at the end of the one before it on its lane. Times are on the
/// first rank's clock; a lane's ops do not overlap, nor leave their step: what does is cut.
AdoptedRun adopt(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                 const schedule::Schedules& schedules, const std::vector<plan::ModuleSizes>& sizes);

}  // namespace fsdpbench::foreign
