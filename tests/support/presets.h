#pragma once

#include <stdexcept>
#include <string>

#include "config/fields.h"
#include "config/presets.h"

namespace fsdpbench::testing {

/// Sets one key as a profile would. Throws std::logic_error if it does not take the value.
inline void set(config::RunConfig& config, const std::string& key, const config::Value& value) {
  const config::Field* field = config::find_field(key);
  if (field == nullptr || !field->read(config, value)) throw std::logic_error(key + " = " + config::to_toml(value));
}

/// `config` with all keys of an engine's preset.
inline config::RunConfig with_preset(config::RunConfig config, const std::string& name) {
  config.fsdp.preset = name;
  for (const auto& [key, value] : config::fsdp_preset(name)) set(config, key, value);
  return config;
}

}  // namespace fsdpbench::testing
