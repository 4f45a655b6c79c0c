#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/setup.h"

namespace fsdpbench::app {

/// Plan, memory, communication and schedule of a configuration, for people.
std::string explain_text(const engine::Setup& setup);

/// The same for programs: {"schema_version", "config", "plan", "memory", "communication", "schedule"}.
nlohmann::json explain_json(const engine::Setup& setup);

}  // namespace fsdpbench::app
