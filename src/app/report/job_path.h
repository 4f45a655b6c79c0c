#pragma once

#include <optional>

#include "app/report/job_report.h"
#include "metrics/path_report.h"

namespace fsdpbench::app {

/// The critical path of a job; absent where it has no step of all ranks, or the path was not asked for.
std::optional<metrics::PathReport> path_of_job(const ExplainedJob& explained);

}  // namespace fsdpbench::app
