#pragma once

#include "clock/collective_kinds.h"
#include "config/cluster.h"

/// Cost of a collective on a cluster: closed forms of algorithms, with rates and latencies that were achieved. Pure
/// functions of plain data; nothing is allocated.
namespace fsdpbench::clock {

struct CollectiveCost {
  double latency_s = 0;          ///< steps: passes whatever else uses the links
  double transfer_s = 0;         ///< bytes: at the full rate of `fabric`; two that share the links share the rate
  Fabric fabric = Fabric::none;  ///< inter also where links in the node would take up to a quarter longer
  Algorithm algorithm = Algorithm::direct;
  Protocol protocol = Protocol::simple;
  int ctas = -1;  ///< multiprocessors that it holds; -1: as many as its rate needs (beside_collective)

  double seconds() const { return latency_s + transfer_s; }
};

/// Bytes of the collectives that a cluster's curve by nodes is of.
inline constexpr double kCurveBytes = 1 << 28;

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
/// leave it communicate as `automatic`. `copy_engine` is an all-gather there: each rank copies its part to the others,
/// one after another (NCCL 2.30.7, ncclCeAllGather), so that its N − 1 copies begin a hop apart as the steps of a ring,
/// at kCopyEngineRate of a ring's rate; it holds no multiprocessor. Other collectives are then `symmetric`.
/// docs/published.md compares with published measurements. An all-to-all is always direct.
///
/// A send_recv of `bytes` from each rank to the next is as slow as its slowest link:
///   latency  = base + hop_inter (of one node: hop_intra)
///   transfer = (bytes + sqrt(bytes ramp)) / B
/// B: in a node the rate of a ring all-gather, in which each GPU sends to the next, too (Azure's node health checks
/// expect 235 GB/s from GPU to GPU of an A100 node, 335 of an H100's); over xGMI that of one link (AMD's cluster
/// validation suite expects 47 GB/s of a MI300X). Between nodes that of one GPU's part of the NICs: only the last rank
/// on a node sends out of it.
CollectiveCost collective_cost(const config::Cluster& cluster, Collective collective, double bytes,
                               const GroupShape& shape, Algorithm asked = Algorithm::automatic);

}  // namespace fsdpbench::clock
