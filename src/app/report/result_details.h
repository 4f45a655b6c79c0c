#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/report/result_json.h"

namespace fsdpbench::app {

/// Adds what the tables do not show: phases, units, collectives, memory over time with the op at the peak, model FLOPs.
/// Needs at least one measured step.
void add_details(const RunReport& report, nlohmann::json& result);

}  // namespace fsdpbench::app
