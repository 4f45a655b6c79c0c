#pragma once

#include <string>
#include <vector>

namespace fsdpbench::engine {

/// XXH3-128 over all parameters in canonical order, as 32 hex digits: equal exactly if every bit of every parameter
/// is (up to hash collisions), whatever the sharding.
std::string parameters_digest(const std::vector<std::vector<float>>& parameters);

}  // namespace fsdpbench::engine
