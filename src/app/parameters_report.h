#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/setup.h"
#include "plan/plan.h"

namespace fsdpbench::app {

/// plan::compare_parallelism() as a table, with the sources of its formulas.
std::string parallelism_text(const engine::Setup& setup);

/// {"schema_version", "ranks", "activation_bytes_per_microbatch", "parallelism": [{"name", "memory", "wire_bytes",
/// "bubble", "source", and "needs" where the model does not go with so many ranks}]}. Bytes a device, and step.
nlohmann::json parallelism_json(const engine::Setup& setup);

/// Layout of parameters on the ranks: a table a unit, units that are split alike folded into one; up to 8 shards,
/// also a picture of each parameter as boxes with the ranks that hold them. Bytes are of fp32 masters; moments and
/// gradients of a rank lie as its masters do.
std::string parameters_text(const plan::Plan& plan);

/// Layout of parameters for programs, unit by unit, nothing folded: [{"name", "unit", "shape", "replicated", "bytes",
/// "padding_bytes", "pieces": [{"shard", "ranks", "offset", "count", "rows", "shard_offset", "bytes"}]}]. Offsets and
/// counts are elements, "rows" is [first, last) where a piece is whole rows; padding of a flat unit belongs to no
/// parameter.
nlohmann::json parameters_json(const plan::Plan& plan);

}  // namespace fsdpbench::app
