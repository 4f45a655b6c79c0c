#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace fsdpbench::dialects {

/// Name and text of every file of profiles/systems, as the build found them; by name.
extern const std::span<const std::pair<std::string_view, std::string_view>> kEmbeddedSystems;

}  // namespace fsdpbench::dialects
