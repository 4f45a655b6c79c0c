#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/setup.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// Plan, memory, communication and the order of collectives, for people: a terminal wide and about a
/// page long, whatever the model's depth.
std::string explain_text(const engine::Setup& setup);

/// The steady schedule op by op.
std::string schedule_text(const engine::Setup& setup);

/// All for programs: {"schema_version", "config", "plan", "memory", "communication", "schedule"}.
nlohmann::json explain_json(const engine::Setup& setup);

const ObjectFacts& explain_file_facts();
inline constexpr int kExplainSchemaVersion = 1;

}  // namespace fsdpbench::app
