#pragma once

#include <functional>
#include <optional>
#include <vector>

namespace fsdpbench::accept {

/// The groups that slow pairs show where nobody has told of any, by end; nothing if they show none. `slow` says it of two
/// ends. Three ends or more that are slow to the same three or more others are a group; fewer can be chance, or as many
/// slow NICs.
std::optional<std::vector<int>> infer_groups(int ends, const std::function<bool(int a, int b)>& slow);

}  // namespace fsdpbench::accept
