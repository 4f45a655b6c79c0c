#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/console/json_part.h"
#include "metrics/cause_advice.h"
#include "metrics/cause_report.h"
#include "metrics/counterfactual.h"

namespace fsdpbench::app {

/// One cause, as in a list of them.
nlohmann::json cause_json(const metrics::CauseShare& share);

/// One knob, as in a list of them. `words`: the setting in those of another program; may be empty.
nlohmann::json knob_json(const metrics::Counterfactual& knob, const std::string& words);

/// Adds "typical_ms", "jitter", "late_ranks", "knobs", "causes" and "causes_small_ms" (docs/run.md) to a trial's JSON.
void add_causes(const metrics::CauseReport& report, nlohmann::json& trial);

/// Reads them from there. Throws ConfigError that names the key that is missing or wrong.
void read_causes(const JsonPart& trial, metrics::CauseReport& report);

}  // namespace fsdpbench::app
