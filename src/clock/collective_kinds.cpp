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
  GroupShape shape{members.count, 1, 1};
  if (placement == Placement::spread) {
    // first + i stride mod nodes takes this many values.
    shape.nodes = std::min(members.count, world_nodes / std::gcd(members.stride, world_nodes));
  } else if (members.stride >= gpus_per_node) {
    shape.nodes = members.count;
  } else {
    shape.nodes = members[members.count - 1] / gpus_per_node - members.first / gpus_per_node + 1;
  }
  shape.per_node = (members.count + shape.nodes - 1) / shape.nodes;
  return shape;
}

}  // namespace fsdpbench::clock
