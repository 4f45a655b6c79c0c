#include "accept/element.h"

#include <fmt/format.h>

#include <stdexcept>

namespace fsdpbench::accept {

std::string name_of(const Element& element, const Cluster& cluster) {
  const auto end = [&](int index) { return fmt::format("{} {}", cluster.one_node() ? "rank" : "node", index); };
  switch (element.kind) {
    case Element::Kind::gpu:
      return fmt::format("rank {} (device {} of node {})", element.index, element.index % cluster.gpus_per_node,
                         element.index / cluster.gpus_per_node);
    case Element::Kind::node: return fmt::format("node {}", element.index);
    case Element::Kind::nic: return fmt::format("NIC {} of node {}", element.other, element.index);
    case Element::Kind::link: return fmt::format("the link between {} and {}", end(element.index), end(element.other));
    case Element::Kind::uplink:
      return fmt::format("the path between switch {} and switch {}", element.index, element.other);
    case Element::Kind::switch_: return fmt::format("switch {}", element.index);
    case Element::Kind::fleet: return "the whole fleet";
  }
  throw std::logic_error("name_of: no such kind of element");
}

std::string next_check(const Element& element, const Cluster& cluster) {
  switch (element.kind) {
    case Element::Kind::gpu:
      return "its clocks, power cap, throttle reasons and ECC counters (nvidia-smi -q), and what else runs there";
    case Element::Kind::node: return "its BIOS and PCIe settings, CPU load, and whether all its NICs have full width";
    case Element::Kind::nic: return "its cable and port: rate, width, symbol errors, PCIe generation and lanes";
    case Element::Kind::link:
      return cluster.one_node() ? "that NVLink's state and error counters, or the PCIe path that replaces it"
                                : "both ports' duplex, error and pause counters, and the route between them";
    case Element::Kind::uplink:
      return "the cables and ports between the two switches, and how routes are spread over them";
    case Element::Kind::switch_: return "its temperature, port errors, pause frames, and failed uplinks";
    case Element::Kind::fleet:
      return "what all have in common: driver, firmware, power cap, NCCL's transport, the reference itself";
  }
  throw std::logic_error("next_check: no such kind of element");
}

}  // namespace fsdpbench::accept
