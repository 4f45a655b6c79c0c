#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"

namespace fsdpbench::config {

// Parts of validate(): each throws ConfigError, or adds to `notes`.

template <class... Args>
void require(bool holds, fmt::format_string<Args...> message, Args&&... args) {
  if (!holds) throw ConfigError(fmt::format(message, std::forward<Args>(args)...));
}
inline void without_effect(std::vector<std::string>& notes, bool given, std::string_view key, std::string_view why) {
  if (given) notes.push_back(fmt::format("{} has no effect: {}.", key, why));
}

/// Checks the keys of routed and shared experts in a decoder's blocks.
void check_routing(const Model& model);
/// Experts are split over neighbours of a shard group, as torchtitan does over FSDP2. After the mesh is settled.
void check_expert_mesh(const RunConfig& config, std::vector<std::string>& notes);

}  // namespace fsdpbench::config
