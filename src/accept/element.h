#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpbench::accept {

/// How a cluster is built, as far as blame can tell its parts apart. Ranks are numbered node by node.
struct Cluster {
  int nodes = 1;
  int gpus_per_node = 8;
  int rails = 1;             ///< NICs of a node that are measured each for itself
  int nodes_per_switch = 0;  ///< nodes of consecutive numbers that share a leaf switch; 0: unknown, or all
  bool on_processors = false;           ///< ranks have no GPUs
  std::vector<std::string> hosts{};     ///< names by rank; none: they are not known
  std::vector<std::string> devices{};   ///< by rank, as their vendor knows them; empty where that is not known
  std::vector<std::string> adapters{};  ///< the NIC nearest to each rank's device, likewise

  int ranks() const { return nodes * gpus_per_node; }
  /// Within one node the ends of links are its GPUs; between several they are the nodes.
  bool one_node() const { return nodes == 1; }
  int ends() const { return one_node() ? gpus_per_node : nodes; }
};

/// Beyond so many ends not every pair is measured.
inline constexpr int kMostForAllPairs = 64;
/// How the ends of a larger cluster are divided: by their switches, or into about sqrt(ends) groups of neighbours.
int group_size(const Cluster& cluster);

/// A part that can be at fault.
struct Element {
  enum class Kind : std::uint8_t {
    gpu,      ///< `index`: rank
    node,     ///< `index`: node
    nic,      ///< `index`: node, `other`: rail
    link,     ///< between the ends `index` and `other`
    uplink,   ///< between the switches `index` and `other`
    switch_,  ///< `index`: switch
    fleet,    ///< all alike: no part, but what they have in common
  };
  Kind kind = Kind::fleet;
  int index = 0;
  int other = 0;

  friend bool operator==(const Element&, const Element&) = default;
};

/// "rank 19 (device 3 of node 2)", "NIC 1 of node 5", "the link between node 3 and node 7".
std::string name_of(const Element& element, const Cluster& cluster);
/// What to look at next: counters, cables, clocks.
std::string next_check(const Element& element, const Cluster& cluster);

}  // namespace fsdpbench::accept
