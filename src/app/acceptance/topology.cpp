#include "app/acceptance/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <sstream>

#include "launch/slurm_lists.h"

namespace fsdpbench::app {
namespace {

/// The value of `key` in a line such as "SwitchName=s0 Level=0 Nodes=n[1-4]"; Slurm ignores the case of keys.
std::string value_of(const std::string& line, const std::string& key) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (word.starts_with('#')) break;
    if (equals == std::string::npos || equals != key.size()) continue;
    const bool same = std::ranges::equal(word.substr(0, equals), key, [](unsigned char a, unsigned char b) {
      return std::tolower(a) == std::tolower(b);
    });
    if (same) return word.substr(equals + 1);
  }
  return {};
}

/// The switch nearest to each host: `scontrol show topology` lists all hosts of a switch above leaves, too, and those have
/// fewer.
std::map<std::string, std::string> leaves_in(const std::string& text) {
  std::map<std::string, std::string> leaf;
  std::map<std::string, std::size_t> size;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = value_of(line, "SwitchName");
    const std::string nodes = value_of(line, "Nodes");
    if (name.empty() || nodes.empty()) continue;
    const std::vector<std::string> hosts = launch::all_hosts(nodes).value_or(std::vector<std::string>{});
    for (const std::string& host : hosts) {
      const auto [at, is_new] = size.try_emplace(host, hosts.size());
      if (!is_new && at->second <= hosts.size()) continue;
      at->second = hosts.size();
      leaf[host] = name;
    }
  }
  return leaf;
}

void set_switches(const std::vector<std::string>& by_node, accept::Cluster& cluster) {
  std::map<std::string, int> number;
  for (const std::string& name : by_node) {
    const auto [at, is_new] = number.try_emplace(name, static_cast<int>(number.size()));
    if (is_new) cluster.switches.push_back(name);
    cluster.switch_of.push_back(at->second);
  }
}

}  // namespace

std::string leaf_of_address(const std::string& address, const std::string& pattern) {
  std::istringstream names(address), kinds(pattern);
  std::string leaf;
  for (std::string name, kind; std::getline(names, name, '.') && std::getline(kinds, kind, '.');) {
    if (kind == "switch") leaf = name;
  }
  return leaf;
}

std::string tell_switches(const Topology& told, const std::vector<std::string>& leaves, accept::Cluster& cluster) {
  const auto first_rank = [&](int node) { return static_cast<std::size_t>(node * cluster.gpus_per_node); };
  if (told.nodes_per_switch > 0) {
    cluster.nodes_per_switch = told.nodes_per_switch;
    return fmt::format("the profile: {} nodes on each, in the order of their ranks", told.nodes_per_switch);
  }
  std::vector<std::string> by_node;
  if (!told.switches.empty()) {
    const std::map<std::string, std::string> leaf = leaves_in(told.switches);
    for (int node = 0; node < cluster.nodes; ++node) {
      const std::string& host = cluster.hosts.at(first_rank(node));
      const auto found = leaf.find(host.substr(0, host.find('.')));
      if (found == leaf.end()) {
        return fmt::format("{} names no switch of {}: switches are not known, and inferred where pairs show them",
                           told.source, host);
      }
      by_node.push_back(found->second);
    }
    set_switches(by_node, cluster);
    return fmt::format("{}: {} switches", told.source, cluster.switches.size());
  }
  for (int node = 0; node < cluster.nodes; ++node) {
    const std::size_t rank = first_rank(node);
    if (rank >= leaves.size() || leaves[rank].empty()) {
      return "nobody told of switches: groups of nodes are inferred where pairs show them";
    }
    by_node.push_back(leaves[rank]);
  }
  set_switches(by_node, cluster);
  return fmt::format("Slurm (SLURM_TOPOLOGY_ADDR): {} switches", cluster.switches.size());
}

}  // namespace fsdpbench::app
