#pragma once

#include "app/console/json_fields.h"
#include "app/report/job_report.h"

namespace fsdpbench::app {

/// The critical path of a job that has a step of all ranks.
const Fields<ExplainedJob>& path_fields();

}  // namespace fsdpbench::app
