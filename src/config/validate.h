#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::config {

/// Checks every key and every rule about several keys, and fills in mesh.shard, mesh.replicate and, if
/// train.batch_global is given, train.batch_per_rank. Returns notes for
/// the user: settings that have no effect or were replaced. Throws ConfigError with keys, values and what is valid.
std::vector<std::string> validate(RunConfig& config);

/// True for the strategies that split units inside groups and keep equal shards across groups.
bool is_hybrid(Strategy strategy);

}  // namespace fsdpbench::config
