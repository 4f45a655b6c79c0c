#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/console/json_part.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {

/// A summary with its interval, as result files have it.
nlohmann::json summary_json(const metrics::Summary& summary);

/// Reads what summary_json() wrote. Throws ConfigError that names the key that is missing or wrong.
metrics::Summary summary_from(const JsonPart& json);

}  // namespace fsdpbench::app
