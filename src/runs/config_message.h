#pragma once

#include <string>
#include <string_view>

#include "config/run_config.h"

namespace fsdpbench::app {

/// A whole configuration as text for another process, a `table.key = value` a line. Unlike a profile it needs no file
/// of a preset to be read.
std::string to_message(const config::RunConfig& config);

/// Reads what to_message() wrote. Throws BackendError if a line is not of that kind.
config::RunConfig config_from_message(std::string_view text);

}  // namespace fsdpbench::app
