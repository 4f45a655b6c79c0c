#include "accept/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>

namespace fsdpbench::accept {

namespace {

Groups grouped(std::vector<int> of) {
  Groups groups;
  groups.members.resize(*std::ranges::max_element(of) + 1);
  for (std::size_t end = 0; end < of.size(); ++end) {
    groups.members[of[end]].push_back(static_cast<int>(end));
  }
  groups.of = std::move(of);
  return groups;
}

/// The name of `rank` in a list that may have none of it.
std::string named(const std::vector<std::string>& names, int rank) {
  const std::size_t index = rank;
  return index < names.size() ? names[index] : "";
}

std::string node_of(int node, const Cluster& cluster) {
  const std::string host = named(cluster.hosts, node * cluster.gpus_per_node);
  return fmt::format("node {}{}", node, host.empty() ? "" : fmt::format(" ({})", host));
}

/// "nodes 4 to 7 (node005 to node008)", "ranks 0, 2, 4".
std::string list_of(const std::vector<int>& ends, const Cluster& cluster) {
  constexpr std::size_t kMostNamed = 16;
  const char* const what = cluster.one_node() ? "ranks" : "nodes";
  const auto host = [&](int end) {
    return cluster.one_node() ? "" : named(cluster.hosts, end * cluster.gpus_per_node);
  };
  if (ends.size() > 1 && ends.back() - ends.front() + 1 == static_cast<int>(ends.size())) {
    const std::string first = host(ends.front());
    return fmt::format("{} {} to {}{}", what, ends.front(), ends.back(),
                       first.empty() ? "" : fmt::format(" ({} to {})", first, host(ends.back())));
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(ends.size(), kMostNamed); ++i) {
    const std::string name = host(ends[i]);
    text += fmt::format("{}{}{}", i == 0 ? "" : ", ", ends[i], name.empty() ? "" : fmt::format(" ({})", name));
  }
  if (ends.size() > kMostNamed) text += fmt::format(" and {} more", ends.size() - kMostNamed);
  return fmt::format("{} {}", what, text);
}

/// Whether somebody told which nodes share a switch. Else groups were inferred, or are of the test alone: nodes are
/// named then, and no switch.
bool told(const Cluster& cluster) {
  return cluster.switch_of.empty() ? cluster.nodes_per_switch > 0 : !cluster.switches.empty();
}

/// Each name once, in the order of ranks.
std::string joined_names(const std::vector<std::string>& names, const std::vector<int>& ranks) {
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> once;
  for (const int rank : ranks) {
    const std::string name = named(names, rank);
    if (!name.empty() && std::ranges::find(once, name) == once.end()) once.push_back(name);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(once.size(), kMostNames); ++i) text += (i == 0 ? "" : ", ") + once[i];
  if (once.size() > kMostNames) text += fmt::format(" and {} more", once.size() - kMostNames);
  return text;
}

/// All ranks of an end: of a node, or one.
void add_end(int end, const Cluster& cluster, std::vector<int>& ranks) {
  const int each = cluster.one_node() ? 1 : cluster.gpus_per_node;
  for (int i = 0; i < each; ++i) ranks.push_back(end * each + i);
}

std::string group_of(int group, const Cluster& cluster) {
  if (!told(cluster)) return list_of(groups_of(cluster).members.at(group), cluster);
  const std::string name = named(cluster.switches, group);
  return fmt::format("switch {}", name.empty() ? std::to_string(group) : name);
}

}  // namespace

Groups groups_of(const Cluster& cluster) {
  const int ends = cluster.ends();
  std::vector<int> of(ends);
  if (cluster.switch_of.size() == of.size()) return grouped(cluster.switch_of);
  int size = cluster.one_node() ? 0 : cluster.nodes_per_switch;
  if (size <= 0 || size >= ends) {
    size = ends <= kMostForAllPairs ? ends : static_cast<int>(std::ceil(std::sqrt(ends)));
  }
  for (int end = 0; end < ends; ++end) of[end] = end / size;
  return grouped(std::move(of));
}

Place place_of(const std::vector<int>& ranks, const Cluster& cluster) {
  std::vector<int> all = ranks;
  if (ranks.empty()) {
    all.resize(cluster.ranks());
    std::iota(all.begin(), all.end(), 0);
  }
  return {.host = joined_names(cluster.hosts, all),
          .device = joined_names(cluster.devices, all),
          .uuid = joined_names(cluster.uuids, all),
          .nic = joined_names(cluster.adapters, all),
          .direction = {}};
}

Place place_of_all(const Cluster& cluster) { return place_of(std::vector<int>{}, cluster); }

std::vector<int> ranks_of_part(const Element& element, const Cluster& cluster) {
  std::vector<int> ranks;
  const auto add_group = [&](int group) {
    const Groups groups = groups_of(cluster);
    for (const int end : groups.members.at(group)) add_end(end, cluster, ranks);
  };
  switch (element.kind) {
    case Element::Kind::gpu: return {element.index};
    case Element::Kind::nic: return {element.index * cluster.gpus_per_node + element.other % cluster.gpus_per_node};
    case Element::Kind::node: add_end(element.index, cluster, ranks); break;
    case Element::Kind::link:
      add_end(element.index, cluster, ranks);
      add_end(element.other, cluster, ranks);
      break;
    case Element::Kind::uplink:
      add_group(element.index);
      add_group(element.other);
      break;
    case Element::Kind::switch_:
    case Element::Kind::leaf_rail: add_group(element.index); break;
    case Element::Kind::rail:
    case Element::Kind::spine:
    case Element::Kind::fleet: break;
  }
  return ranks;
}

Place place_of(const Element& element, const Cluster& cluster) {
  Place place = place_of(ranks_of_part(element, cluster), cluster);
  if (element.kind != Element::Kind::nic) return place;
  place.device.clear();
  place.uuid.clear();
  if (place.nic.empty()) place.nic = fmt::format("NIC {}", element.other);
  return place;
}

std::string name_of(const Element& element, const Cluster& cluster) {
  const auto end = [&](int index) {
    return cluster.one_node() ? fmt::format("rank {}", index) : node_of(index, cluster);
  };
  switch (element.kind) {
    case Element::Kind::gpu: {
      const std::string host = named(cluster.hosts, element.index);
      const std::string device = named(cluster.devices, element.index);
      return fmt::format("rank {} (device {} of node {}{}{})", element.index, element.index % cluster.gpus_per_node,
                         element.index / cluster.gpus_per_node, host.empty() ? "" : ", " + host,
                         device.empty() ? "" : ", " + device);
    }
    case Element::Kind::node: return node_of(element.index, cluster);
    case Element::Kind::nic: {
      const std::string adapter =
          named(cluster.adapters, element.index * cluster.gpus_per_node + element.other % cluster.gpus_per_node);
      return fmt::format("NIC {}{} of {}", element.other, adapter.empty() ? "" : fmt::format(" ({})", adapter),
                         node_of(element.index, cluster));
    }
    case Element::Kind::link: return fmt::format("the link between {} and {}", end(element.index), end(element.other));
    case Element::Kind::uplink:
      return fmt::format("the path between {} and {}", group_of(element.index, cluster),
                         group_of(element.other, cluster));
    case Element::Kind::switch_:
      if (told(cluster)) return group_of(element.index, cluster);
      return fmt::format("what {} have in common{}", group_of(element.index, cluster),
                         cluster.one_node() ? "" : " above their NICs");
    case Element::Kind::leaf_rail: return fmt::format("rail {} of {}", element.other, group_of(element.index, cluster));
    case Element::Kind::rail: return fmt::format("rail {} of all nodes", element.index);
    case Element::Kind::spine: return "one of the paths that the switches choose among";
    case Element::Kind::fleet: return "the whole fleet";
  }
  throw std::logic_error("name_of: no such kind of element");
}

std::string next_check(const Element& element, const Cluster& cluster, SlowAt at) {
  switch (element.kind) {
    case Element::Kind::gpu:
      if (at == SlowAt::transfers && cluster.on_processors) {
        return "its cable and switch port, its NIC's firmware and PCIe slot; within a host, who shares its memory";
      }
      if (at == SlowAt::transfers) {
        return "its NVLinks' state and error counters (nvidia-smi nvlink -s, -e), the switch port they lead to, its "
               "NIC's "
               "cable and firmware, and both their PCIe placement and width (nvidia-smi topo -m)";
      }
      if (cluster.on_processors)
        return "its clocks, power cap and cooling, limits of its control group, and what else runs there";
      return "its clocks, power cap, throttle reasons and ECC counters (nvidia-smi -q), and what else runs there";
    case Element::Kind::node:
      return "its cables and switch ports, the firmware of its NICs, their PCIe slots and width, and its CPU load";
    case Element::Kind::nic: return "its cable and port: rate, width, symbol errors, PCIe generation and lanes";
    case Element::Kind::link:
      return cluster.one_node() ? "that NVLink's state and error counters, or the PCIe path that replaces it"
                                : "both ports' duplex, error and pause counters, and the route between them";
    case Element::Kind::uplink:
      return "the cables and ports between the two switches, and how routes are spread over them";
    case Element::Kind::switch_:
      if (cluster.one_node()) return "what these ranks share and others do not: a socket, a PCIe switch, a memory";
      if (!told(cluster)) return "what these nodes share and others do not: leaf switch, its uplinks, a rack";
      return "its temperature, port errors, pause frames, and failed uplinks";
    case Element::Kind::leaf_rail:
      return "the switch that connects this rail of these nodes: its temperature, port errors, pause frames, uplinks";
    case Element::Kind::rail: return "the switches of this rail, and the slot and firmware of the NICs on it";
    case Element::Kind::spine: return "error and pause counters of the spine switches and of their ports";
    case Element::Kind::fleet:
      return "what all have in common: driver, firmware, power cap, NCCL's transport, the reference itself";
  }
  throw std::logic_error("next_check: no such kind of element");
}

}  // namespace fsdpbench::accept
