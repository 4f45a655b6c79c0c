#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::launch {

/// The first host of a Slurm node list: "node003" of "node[003-007,9],login1". Nothing if it is no such list.
std::optional<std::string> first_host(std::string_view node_list);
/// All hosts of such a list, in order; nothing if it is no such list, or has more than a million.
std::optional<std::vector<std::string>> all_hosts(std::string_view node_list);
/// Element `node` of a list such as "8(x2),4", which stands for 8,8,4. Nothing if it is no such list or too short.
std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace fsdpbench::launch
