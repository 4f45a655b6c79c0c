#include "accept/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fsdpbench::accept {

namespace {

/// The name of `rank` in a list that may have none of it.
std::string named(const std::vector<std::string>& names, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  return index < names.size() ? names[index] : "";
}

std::string with(const std::string& text, const std::string& name) { return name.empty() ? text : text + name; }

std::string node_of(int node, const Cluster& cluster) {
  const std::string host = named(cluster.hosts, node * cluster.gpus_per_node);
  return with(fmt::format("node {}", node), host.empty() ? "" : fmt::format(" ({})", host));
}

/// Of nodes that share something above their NICs. Where nobody has told of switches, groups are of the test alone: the
/// nodes are named, and no switch.
std::string group_of(int group, const Cluster& cluster) {
  if (cluster.nodes_per_switch > 0) return fmt::format("switch {}", group);
  const int size = group_size(cluster);
  return fmt::format("nodes {} to {}", group * size, std::min(cluster.nodes, (group + 1) * size) - 1);
}

}  // namespace

int group_size(const Cluster& cluster) {
  const int ends = cluster.ends();
  const int of_switch = cluster.one_node() ? 0 : cluster.nodes_per_switch;
  if (of_switch > 0 && of_switch < ends) return of_switch;
  if (ends <= kMostForAllPairs) return ends;
  return static_cast<int>(std::ceil(std::sqrt(ends)));
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
      return cluster.nodes_per_switch > 0
                 ? group_of(element.index, cluster)
                 : fmt::format("what {} have in common above their NICs", group_of(element.index, cluster));
    case Element::Kind::fleet: return "the whole fleet";
  }
  throw std::logic_error("name_of: no such kind of element");
}

std::string next_check(const Element& element, const Cluster& cluster) {
  switch (element.kind) {
    case Element::Kind::gpu:
      if (cluster.on_processors) return "its clocks, power cap and cooling, limits of its control group, and what else runs there";
      return "its clocks, power cap, throttle reasons and ECC counters (nvidia-smi -q), and what else runs there";
    case Element::Kind::node: return "its BIOS and PCIe settings, CPU load, and whether all its NICs have full width";
    case Element::Kind::nic: return "its cable and port: rate, width, symbol errors, PCIe generation and lanes";
    case Element::Kind::link:
      return cluster.one_node() ? "that NVLink's state and error counters, or the PCIe path that replaces it"
                                : "both ports' duplex, error and pause counters, and the route between them";
    case Element::Kind::uplink:
      return "the cables and ports between the two switches, and how routes are spread over them";
    case Element::Kind::switch_:
      if (cluster.nodes_per_switch == 0) return "what these nodes share and others do not: leaf switch, its uplinks, a rack";
      return "its temperature, port errors, pause frames, and failed uplinks";
    case Element::Kind::fleet:
      return "what all have in common: driver, firmware, power cap, NCCL's transport, the reference itself";
  }
  throw std::logic_error("next_check: no such kind of element");
}

}  // namespace fsdpbench::accept
