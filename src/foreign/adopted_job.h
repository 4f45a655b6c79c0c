#pragma once

#include <memory>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/run_metrics.h"
#include "engine/setup.h"
#include "foreign/recognise.h"
#include "runs/cell.h"
#include "trace/record.h"

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
