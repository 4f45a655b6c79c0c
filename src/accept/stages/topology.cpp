#include "accept/stages/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "accept/stages/node_topology.h"
#include "base/error.h"
#include "launch/slurm_lists.h"
#include "record/json_part.h"
#include "record/json_text.h"

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

/// Labels of Kubernetes that say which nodes share what, the narrowest first: of Topograph (1.0 and before), of network
/// operators, then a rack; a zone has many switches, and is told where nothing else is.
constexpr std::array kLeafLabels{"fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf",
                                 "network.topology.kubernetes.io/leaf", "topology.kubernetes.io/rack",
                                 "topology.kubernetes.io/zone"};

/// The leaf of each host of a list of nodes, by the first label that any of them has.
std::map<std::string, std::string> leaves_of_labels(const std::string& text, const std::string& source) {
  const nlohmann::json content = parse_json(text);
  if (!content.is_object()) {
    throw ConfigError(fmt::format("{}: is no whole JSON; expected what `kubectl get nodes -o json` prints.", source));
  }
  const JsonPart whole(content);
  const std::vector<JsonPart> nodes = whole.has("items") ? whole.at("items").list() : std::vector{whole};
  for (const char* label : kLeafLabels) {
    std::map<std::string, std::string> leaf;
    for (const JsonPart& node : nodes) {
      const JsonPart about = node.at("metadata");
      if (!about.has("labels") || !about.at("labels").has(label)) continue;
      const std::string name = about.at("name").text(), value = about.at("labels").at(label).text();
      for (const std::string& host : {name, about.at("labels").text("kubernetes.io/hostname", name)}) {
        leaf[host.substr(0, host.find('.'))] = value;
      }
    }
    if (!leaf.empty()) return leaf;
  }
  return {};
}

std::map<std::string, std::string> leaves_told(const Topology& told) {
  const std::size_t begin = told.switches.find_first_not_of(" \t\r\n");
  const bool labels = begin != told.switches.npos && told.switches[begin] == '{';
  return labels ? leaves_of_labels(told.switches, told.source) : leaves_in(told.switches);
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

void check_topology(const Topology& told) {
  (void)leaves_told(told);
  if (!told.node.empty()) (void)read_node_topology(told.node, told.node_source);
}

std::string tell_switches(const Topology& told, const std::vector<std::string>& leaves, accept::Cluster& cluster) {
  const auto first_rank = [&](int node) { return static_cast<std::size_t>(node * cluster.gpus_per_node); };
  if (told.nodes_per_switch > 0) {
    cluster.nodes_per_switch = told.nodes_per_switch;
    return fmt::format("the profile: {} nodes on each, in the order of their ranks", told.nodes_per_switch);
  }
  std::vector<std::string> by_node;
  if (!told.switches.empty()) {
    const std::map<std::string, std::string> leaf = leaves_told(told);
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
