#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/spelling.h"

namespace fsdpbench::config {

/// The layers of a configuration, weakest first.
struct Layers {
  RunConfig presets;             ///< the built-in defaults and the presets
  std::vector<Entry> profile;    ///< keys of the file
  std::vector<Entry> overrides;  ///< keys of the command line
};

/// Resets in `config`, which all layers made, what the profile sets and an override makes meaningless: the latency of a
/// link that is turned off, emulation on a GPU, a mesh for other ranks or another strategy. A key that the command line
/// sets itself never gives way: that is a contradiction, and validate() says so. Returns a note for each reason,
/// with its keys, and one if the profile sets keys that a preset of the command line would have set.
std::vector<std::string> give_way(RunConfig& config, const Layers& layers);

}  // namespace fsdpbench::config
