#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpbench::accept {

/// Structure of a cluster, as far as blame can tell its parts apart. Ranks are numbered node by node.
struct Cluster {
  int nodes = 1;
  int gpus_per_node = 8;
  int rails = 1;                        ///< NICs of a node that are measured each for itself
  int nodes_per_switch = 0;             ///< nodes of consecutive numbers that share a leaf switch; 0: unknown, or all
  std::vector<int> switch_of{};         ///< the group of each end; none: `nodes_per_switch` says it
  std::vector<std::string> switches{};  ///< names of these groups, as somebody told them; none: they were inferred
  bool on_processors = false;           ///< ranks have no GPUs
  std::vector<std::string> hosts{};     ///< names by rank; none: they are not known
  std::vector<std::string> devices{};   ///< by rank, as their vendor knows them; empty where that is not known
  std::vector<std::string> uuids{};     ///< of these devices, "GPU-1b4e28ba-…", likewise
  std::vector<std::string> adapters{};  ///< the NIC nearest to each rank's device, likewise

  int ranks() const { return nodes * gpus_per_node; }
  /// Within one node the ends of links are its GPUs; between several they are the nodes.
  bool one_node() const { return nodes == 1; }
  int ends() const { return one_node() ? gpus_per_node : nodes; }
};

/// Beyond so many ends not every pair is measured.
inline constexpr int kMostForAllPairs = 64;

/// Division of a cluster's link ends by what they share: switches, sockets, or nothing that is known.
struct Groups {
  std::vector<int> of;                    ///< by end
  std::vector<std::vector<int>> members;  ///< by group, in order

  int count() const { return static_cast<int>(members.size()); }
  bool same(int a, int b) const { return of[a] == of[b]; }
};

/// By `cluster`'s switches where they are known or inferred. Else one group, or beyond kMostForAllPairs ends groups of
/// about sqrt(ends) neighbours, which are of the test alone.
Groups groups_of(const Cluster& cluster);

/// A part that can be at fault.
struct Element {
  enum class Kind : std::uint8_t {
    gpu,        ///< `index`: rank
    node,       ///< `index`: node
    nic,        ///< `index`: node, `other`: rail
    link,       ///< between the ends `index` and `other`
    uplink,     ///< between the switches `index` and `other`
    switch_,    ///< `index`: switch, or group of ends that nobody has told of
    leaf_rail,  ///< `index`: switch, `other`: the rail that its nodes are slow on
    rail,       ///< `index`: of all nodes
    spine,      ///< one of the paths that switches choose among
    fleet,      ///< all alike: no part, but what they have in common
  };
  Kind kind = Kind::fleet;
  int index = 0;
  int other = 0;

  friend auto operator<=>(const Element&, const Element&) = default;
};

/// Location of something, in the words of those who own it; a word is empty where it is not known, or does not apply.
struct Place {
  std::string host;       ///< of several their names, "a, b"
  std::string device;     ///< as its vendor knows it: "PCI 0000:4e:00.0"
  std::string uuid{};     ///< of that device, which stays when it moves to another slot: "GPU-1b4e28ba-…"
  std::string nic;        ///< "mlx5_2"
  std::string direction;  ///< "sends" or "receives", of a part that is slow in one direction only
};
/// Ranks of a part; empty: all.
std::vector<int> ranks_of_part(const Element& element, const Cluster& cluster);
/// Many names are cut short.
Place place_of_all(const Cluster& cluster);
/// Place of these ranks; of all ranks if the list is empty.
Place place_of(const std::vector<int>& ranks, const Cluster& cluster);
Place place_of(const Element& element, const Cluster& cluster);

/// "rank 19 (device 3 of node 2)", "NIC 1 of node 5", "the link between node 3 and node 7".
std::string name_of(const Element& element, const Cluster& cluster);
/// How a part was found to be slow.
enum class SlowAt : std::uint8_t { work, transfers };
/// Advice what to look at next: clocks of what is slow at its work, cables and ports of what is slow at transfers.
std::string next_check(const Element& element, const Cluster& cluster, SlowAt at);

}  // namespace fsdpbench::accept
