#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/report/job_report.h"

namespace fsdpbench::app {

/// Everything: explain.json. Its fields are in docs/trace-explain.md.
nlohmann::json job_json(const ExplainedJob& explained);

}  // namespace fsdpbench::app
