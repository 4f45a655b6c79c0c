#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/setup.h"

namespace fsdpbench::app {

/// plan::compare_parallelism() as a table, with the sources of its formulas.
std::string parallelism_text(const engine::Setup& setup);

/// {"schema_version", "ranks", "activation_bytes_per_microbatch", "parallelism": [{"name", "memory", "wire_bytes",
/// "bubble", "source", and "needs" where the model does not go with so many ranks}]}. Bytes a device, and step.
nlohmann::json parallelism_json(const engine::Setup& setup);

}  // namespace fsdpbench::app
