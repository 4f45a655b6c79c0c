#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plan/model_shapes.h"

namespace fsdpbench::model {

/// Fills `target` with the initial values of elements [begin, end) of a parameter, the whole of it. An element's value
/// depends only on the seed, the parameter's number (plan::ParameterShape) and the element's index within it: a rank
/// fills its own shard, and every sharding starts from the same model.
void initialize_parameter(const plan::ParameterShape& parameter, std::uint64_t seed, std::int64_t begin,
                          std::int64_t end, float* target);

/// Source of initial values: fills elements [begin, begin + out.size()) of parameter `parameter` (canonical index).
/// Called from all ranks' threads at once.
using FillParameter = std::function<void(int parameter, std::int64_t begin, std::span<float> out)>;

}  // namespace fsdpbench::model
