#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_table.h"
#include "config/cluster.h"
#include "plan/groups.h"

/// What a collective takes on a cluster: closed forms of algorithms, with rates and latencies that were achieved. Pure
/// functions of plain data; nothing is allocated.
namespace fsdpbench::replay {

enum class Collective : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };
std::string_view to_string(Collective collective);

/// How a collective is done. `automatic` in a question: as NCCL would choose; never in an answer.
enum class Algorithm : std::uint8_t {
  ring,          ///< rank to rank, through all of them
  tree,          ///< chains in nodes, a double binary tree over nodes
  hierarchical,  ///< first between GPUs of equal place in their nodes, then inside the nodes (reduce: the reverse)
  pat,           ///< parallel aggregated trees: logarithmically many steps
  nvls,          ///< the switch of one node reduces
  nvls_tree,     ///< the switches of nodes reduce, a tree between them
  direct,        ///< each rank with each other at once
  automatic,
};
inline constexpr int kAlgorithmCount = static_cast<int>(kEnumCount<Algorithm>) - 1;  ///< without automatic
std::string_view to_string(Algorithm algorithm);

/// NCCL's ways of moving data: with flags in every 8 bytes, in every 128, or after whole chunks.
enum class Protocol : std::uint8_t { ll, ll128, simple };
std::string_view to_string(Protocol protocol);

/// Which links the ranks of a group have between them.
struct GroupShape {
  int ranks = 1;
  int nodes = 1;     ///< that the ranks lie on
  int per_node = 1;  ///< ranks on a node, on the fullest

  bool operator==(const GroupShape&) const = default;
};

/// Which rank lies on which node.
enum class Placement : std::uint8_t {
  packed,  ///< ranks 0 … g − 1 on the first node, the next on the second: shard groups stay inside nodes where they can
  spread,  ///< rank r on node r mod nodes, so that neighbours never share one
};

/// Shape of a group of a world of `ranks` ranks on whole nodes of `gpus_per_node` (or fewer ranks on one). Takes the
/// same time for any number of ranks.
GroupShape shape_of(const plan::Members& members, int ranks, int gpus_per_node,
                    Placement placement = Placement::packed);

/// Which links a collective fills. Those of different fabrics do not share.
enum class Fabric : std::uint8_t { none, intra, inter };
std::string_view to_string(Fabric fabric);

struct CollectiveCost {
  double latency_s = 0;          ///< steps: passes whatever else uses the links
  double transfer_s = 0;         ///< bytes: at the full rate of `fabric`; two that share the links share the rate
  Fabric fabric = Fabric::none;  ///< inter also where links in the node would take up to a quarter longer
  Algorithm algorithm = Algorithm::direct;
  Protocol protocol = Protocol::simple;

  double seconds() const { return latency_s + transfer_s; }
};

/// Whether `algorithm` can do `collective` on such a group of such a cluster.
bool can_run(Algorithm algorithm, Collective collective, const config::Cluster& cluster, const GroupShape& shape);

/// Time of a collective from the arrival of its last rank. `bytes`: of the full tensor (gathered, unreduced, exchanged,
/// or broadcast). One rank takes no time. The time never falls when bytes grow, and never grows when an achieved rate
/// of the cluster does. An algorithm that cannot run here (can_run) is taken as `automatic`.
///
/// Of a ring all-gather or reduce-scatter of S bytes over N ranks on n nodes, w = S (N − 1)/N:
///   latency  = base + (N − n) hop_intra + (n − 1) hop_inter
///   transfer = (w + sqrt(w ramp)) / B
/// B: the achieved bus bandwidth of the slower fabric, for the group's part of the node's GPUs and NICs.
/// docs/published.md compares with published measurements. An all-to-all is always direct.
CollectiveCost collective_cost(const config::Cluster& cluster, Collective collective, double bytes,
                               const GroupShape& shape, Algorithm asked = Algorithm::automatic);

}  // namespace fsdpbench::replay
