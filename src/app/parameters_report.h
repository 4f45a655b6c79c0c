#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/plan.h"

namespace fsdpbench::app {

/// How every parameter lies on the ranks: a table a unit, units that are split alike folded into one; up to 8 shards,
/// also a picture of each parameter as boxes with the ranks that hold them. Bytes are of fp32 masters; moments and
/// gradients of a rank lie as its masters do.
std::string parameters_text(const plan::Plan& plan);

/// The same for programs, unit by unit, nothing folded: [{"name", "unit", "shape", "replicated", "bytes",
/// "padding_bytes", "pieces": [{"shard", "ranks", "offset", "count", "rows", "shard_offset", "bytes"}]}]. Offsets and
/// counts are elements, "rows" is [first, last) where a piece is whole rows; padding of a flat unit belongs to no
/// parameter.
nlohmann::json parameters_json(const plan::Plan& plan);

}  // namespace fsdpbench::app
