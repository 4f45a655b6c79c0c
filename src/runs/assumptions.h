#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// A setting on which a forecast for a cluster depends as much as on the cluster.
struct Assumption {
  std::string key, value;
  bool said = false;  ///< by the profile's file or an override; else a default or a preset decided
};
template <>
Fields<Assumption> declared<Assumption>();

/// Those of `config`, which load_profile made of `profile` and `overrides`: tokens, recomputation, dtypes, kernels and
/// the loss.
std::vector<Assumption> assumptions_of(const config::RunConfig& config, const std::string& profile,
                                       const std::vector<std::string>& overrides);

/// One line, with a star at each that nobody said, and a second that says what the star means if there is one.
std::string assumptions_text(const std::vector<Assumption>& assumptions);

}  // namespace fsdpbench::app
