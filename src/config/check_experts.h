#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {

// Parts of validate(): each throws ConfigError, or adds to `notes`.

/// Checks the experts of a decoder's blocks, routed and shared ones.
void check_routing(const Model& model, std::vector<std::string>& notes);
/// Experts are split over neighbours of a shard group, as torchtitan does over FSDP2. After the mesh is settled.
void check_expert_mesh(const RunConfig& config, std::vector<std::string>& notes);

}  // namespace fsdpbench::config
