#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {

// Parts of validate(): each throws ConfigError, or adds to `notes`.

/// Checks the keys of routed and shared experts in a decoder's blocks.
void check_routing(const Model& model);
/// Experts are split over neighbours of a shard group, as torchtitan does over FSDP2. After the mesh is settled.
void check_expert_mesh(const RunConfig& config, std::vector<std::string>& notes);

}  // namespace fsdpbench::config
