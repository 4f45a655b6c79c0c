#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {

/// A part of validate(): what does not go with device.graphs. Throws ConfigError, or adds to `notes`.
void check_graphs(const RunConfig& config, std::vector<std::string>& notes);

}  // namespace fsdpbench::config
