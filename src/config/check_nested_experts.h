#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {

/// A part of validate(): what does not go with fsdp.expert_unit = "module". Throws ConfigError, or adds to `notes`.
/// After the mesh is settled.
void check_nested_experts(const RunConfig& config, std::vector<std::string>& notes);

}  // namespace fsdpbench::config
