#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdpbench::backend {

/// What a device's facts call how such collectives were done: "all_gather of 2097152 B on 8 ranks". `bytes`: of the
/// whole message.
inline std::string collective_fact(std::string_view name, std::int64_t bytes, int ranks) {
  return std::string(name) + " of " + std::to_string(bytes) + " B on " + std::to_string(ranks) + " ranks";
}

}  // namespace fsdpbench::backend
