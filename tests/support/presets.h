#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

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

/// with_preset() with its elements scaled down to units of `unit` elements, from the 218 million of a block of Llama 2
/// 7B.
inline config::RunConfig with_scaled_preset(config::RunConfig config, const std::string& name, std::int64_t unit) {
  config = with_preset(config, name);
  config::Fsdp& f = config.fsdp;
  for (std::int64_t* elements : {&f.forward_prefetch.elements, &f.backward_prefetch.elements, &f.max_live_parameters,
                                 &f.max_reuse_distance, &f.reduce_bucket, &f.reduce_scatter_elements}) {
    *elements = std::llround(static_cast<double>(*elements) * static_cast<double>(unit) / 218e6);
  }
  if (f.persistence_threshold < 1'000'000) f.persistence_threshold = 0;
  return config;
}

}  // namespace fsdpbench::testing
