#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/run_config.h"

namespace fsdpbench::config {

/// The complete configuration as a profile: every key, with its meaning as a comment. Reading it gives an equal one.
std::string to_toml(const RunConfig& config);

/// JSON of a configuration: {"table": {"key": value}}; null where a key says "none" for "not emulated".
nlohmann::json to_json(const RunConfig& config);

/// The keys on which `config` is not as `otherwise`: [{"key": "fsdp.wrap", "value": …, "default": …}], in the order of
/// all keys.
nlohmann::json changed_to_json(const RunConfig& config, const RunConfig& otherwise);

}  // namespace fsdpbench::config
