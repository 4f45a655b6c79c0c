#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "record/json_fields.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// Why computation was not running, ranked, from a result: text for people. `given`: a result.json or its folder.
/// Throws ConfigError if there is none, it is damaged, not of this schema version, or has no causes.
std::string explain_result(const std::string& given);

/// Part of result.json that is known before a trial: configuration, world, what is to be trained.
nlohmann::json result_frame(const engine::Setup& setup, const World& world);

/// The content of result.json (docs/result-format.md): a trial's numbers, its configuration, and the details that
/// tables do not show: phases, units, collectives, every step, memory over time. What was not measured is not in it.
nlohmann::json result_json(const engine::Setup& setup, const Trial& trial);
const ObjectFacts& run_file_facts();

}  // namespace fsdpbench::app
