#include "accept/stages/topology.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <sstream>
#include <utility>

namespace fsdpbench::app {
std::string leaf_of_address(const std::string& address, const std::string& pattern) {
  std::istringstream names(address), kinds(pattern);
  std::string leaf;
  for (std::string name, kind; std::getline(names, name, '.') && std::getline(kinds, kind, '.');) {
    if (kind == "switch") leaf = name;
  }
  return leaf;
}

std::string tell_switches(int nodes_per_switch, const std::vector<std::string>& leaves, accept::Cluster& cluster) {
  if (nodes_per_switch > 0) {
    cluster.nodes_per_switch = nodes_per_switch;
    return fmt::format("the profile: {} nodes on each, in the order of their ranks", nodes_per_switch);
  }
  std::map<std::string, int> number;
  std::vector<int> switch_of;
  for (int node = 0; node < cluster.nodes; ++node) {
    const std::size_t rank = node * cluster.gpus_per_node;
    if (rank >= leaves.size() || leaves[rank].empty()) {
      return "nobody told of switches: groups of nodes are inferred where pairs show them";
    }
    switch_of.push_back(number.try_emplace(leaves[rank], static_cast<int>(number.size())).first->second);
  }
  cluster.switch_of = std::move(switch_of);
  cluster.switches.resize(number.size());
  for (const auto& [name, index] : number) cluster.switches[index] = name;
  return fmt::format("Slurm (SLURM_TOPOLOGY_ADDR): {} switches", cluster.switches.size());
}

}  // namespace fsdpbench::app
