#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "app/console/json_part.h"
#include "app/experiment/trial.h"

namespace fsdpbench::app {

/// All single numbers of a trial's metrics, by their names in result files. What was not measured is not among them.
std::vector<std::pair<std::string_view, double>> metric_numbers(const Trial& trial);

/// The parts "metrics", "causes" and what belongs to them (cause_json.h), "stalled_ms", "memory", "comm", "world",
/// "steps_ms" and "seconds" of result files; those that were not measured are absent. The details of one run are
/// result.json's alone (report/result_json.h).
nlohmann::json to_json(const Trial& trial);

/// Reads what to_json() wrote, or a whole result.json. Throws ConfigError that names the key that is missing or wrong.
Trial trial_from_json(const JsonPart& json);
Trial trial_from_json(const nlohmann::json& json);

}  // namespace fsdpbench::app
