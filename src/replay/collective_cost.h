#pragma once

#include "config/cluster.h"
#include "replay/collective_kinds.h"

/// What a collective takes on a cluster: closed forms of algorithms, with rates and latencies that were achieved. Pure
/// functions of plain data; nothing is allocated.
namespace fsdpbench::replay {

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
/// or broadcast). One rank takes no time. The time never grows when an achieved rate of the cluster does. It never
/// falls when bytes grow, but where NCCL changes its protocol or algorithm: its own model rates LL128 above what that
/// achieves between nodes, so it leaves it too late. An algorithm that cannot run here (can_run) is taken as
/// `automatic`.
///
/// The cost of a ring all-gather or reduce-scatter of S bytes over N ranks on n nodes, w = S (N − 1)/N:
///   latency  = base + (N − n) hop_intra + (n − 1) hop_inter
///   transfer = (w + sqrt(w ramp)) / B
/// B: the achieved bus bandwidth of the slower fabric, for the group's part of the node's GPUs and NICs.
/// `symmetric` is NCCL's own estimate (nccl_symmetric), in one NVLink domain whose switch can multicast; groups that
/// leave it communicate as `automatic`. docs/published.md compares with published measurements. An all-to-all is always
/// direct.
CollectiveCost collective_cost(const config::Cluster& cluster, Collective collective, double bytes,
                               const GroupShape& shape, Algorithm asked = Algorithm::automatic);

}  // namespace fsdpbench::replay
