#pragma once

#include <nlohmann/json_fwd.hpp>

#include "foreign/job_report.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// Version of explain.json.
inline constexpr int kJobSchemaVersion = 3;

/// Everything: explain.json (docs/result-format.md).
nlohmann::json job_json(const ExplainedJob& explained);
const ObjectFacts& job_file_facts();

}  // namespace fsdpbench::app
