#include "clock/collective_kinds.h"

#include <algorithm>
#include <numeric>

#include "base/enum_table.h"

namespace fsdpbench::clock {

std::string_view to_string(Algorithm algorithm) {
  constexpr EnumNames<Algorithm> kNames{"ring",      "tree",   "hierarchical", "pat",       "nvls",
                                        "nvls_tree", "direct", "auto",         "symmetric", "copy_engine"};
  return kNames[algorithm];
}

std::string_view to_string(Protocol protocol) {
  constexpr EnumNames<Protocol> kNames{"LL", "LL128", "Simple"};
  return kNames[protocol];
}

std::string_view to_string(Fabric fabric) {
  constexpr EnumNames<Fabric> kNames{"none", "intra", "inter"};
  return kNames[fabric];
}

GroupShape shape_of(const plan::Members& members, int ranks, int gpus_per_node, Placement placement) {
  const int world_nodes = (ranks + gpus_per_node - 1) / gpus_per_node;
  int nodes = members.count;
  if (placement == Placement::spread) {
    // first + i stride mod nodes takes this many values.
    nodes = std::min(nodes, world_nodes / std::gcd(members.stride, world_nodes));
  } else if (members.stride < gpus_per_node) {
    nodes = members[members.count - 1] / gpus_per_node - members.first / gpus_per_node + 1;
  }
  return {members.count, nodes, (members.count + nodes - 1) / nodes};
}

}  // namespace fsdpbench::clock
