#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "config/spelling.h"
#include "config/words/words.h"

namespace fsdpbench::config {

/// Valid values of fsdp.preset: engines whose defaults are known (config/words).
const std::vector<std::string>& fsdp_preset_names();

/// The keys that make up an engine's defaults, with their values; first those of fsdp2, which are the defaults of
/// Fsdp, so that a later preset changes all that an earlier one did. Empty for a name that is no preset.
std::vector<std::pair<std::string, Value>> fsdp_preset(std::string_view name);

/// Host times of the engine that issues a simulated training: that of its preset, PyTorch's DDP where several ranks
/// shard nothing, or, as simulate.host says, this program's own.
dialects::HostTimes host_times(const RunConfig& config);

}  // namespace fsdpbench::config
