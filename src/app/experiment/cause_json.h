#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/console/json_part.h"
#include "metrics/cause_report.h"

namespace fsdpbench::app {

/// Adds "typical_ms", "jitter", "late_ranks", "knobs", "causes" and "causes_small_ms" (docs/run.md) to a trial's JSON.
void add_causes(const metrics::CauseReport& report, nlohmann::json& trial);

/// Reads them from there. Throws ConfigError that names the key that is missing or wrong.
void read_causes(const JsonPart& trial, metrics::CauseReport& report);

}  // namespace fsdpbench::app
