#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/experiment/trial.h"

namespace fsdpbench::app {

/// "gpus" of result files: of each rank that has one what its GPU was like in each measured step, what it reported, and
/// whether it throttled. An empty list without GPUs. What the driver did not tell is absent, in a list null.
nlohmann::json gpus_json(const Trial& trial);

}  // namespace fsdpbench::app
