#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/run_metrics.h"
#include "engine/setup.h"
#include "foreign/matched_collectives.h"
#include "foreign/recognise.h"
#include "plan/module_sizes.h"
#include "runs/cell.h"
#include "schedule/op.h"
#include "trace/record.h"

namespace fsdpbench::foreign {

/// A job's rows as if an executor of ours had recorded them.
struct AdoptedRun {
  std::vector<trace::RankTrace> traces;  ///< by rank, with the same steps, all of the steady schedule; may be empty
  std::size_t left_out = 0;              ///< steps whose collectives are not launched as in the schedule
};

/// Adopts what `found.schedule` was matched with, on its schedules.
///
/// [Note: whose time a row is]
/// Collectives are one op each. Computation between two of them is that of the ops which the schedule has there: a row
/// an op where there are as many, else rows are dealt out in order, by FLOPs. Copies, casts and updates likewise, by
/// their names. An op that no row is for takes no time, as soon as its lane is free and what it waits for is done.
/// Times are on the first rank's clock; a lane's ops do not overlap, nor leave their step: what does is cut.
AdoptedRun adopt(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                 const schedule::Schedules& schedules, const std::vector<plan::ModuleSizes>& sizes);

}  // namespace fsdpbench::foreign

namespace fsdpbench::app {

/// A traced job as a run of ours: the setup of the schedule that it follows, its rows as records of that schedule.
struct AdoptedJob {
  engine::Setup setup;
  std::vector<trace::RankTrace> traces;
  account::RunMetrics metrics;
  account::CauseReport causes;  ///< with what each knob would bring
  std::size_t left_out = 0;     ///< steps that do not follow the schedule
};

/// Throws ConfigError that says what is missing: a schedule that the job follows, a file of each rank, a step.
AdoptedJob adopt_job(const foreign::JobTrace& job, const foreign::Recognition& found);

}  // namespace fsdpbench::app
