#pragma once

#include <string_view>

#include "clock/collective_kinds.h"
#include "config/cluster.h"

/// NCCL's own model of its collectives, from which it chooses: src/graph/tuning.cc of NCCL 2.30.7. Its latencies are
/// weights for choosing, not times of a wire: over EFA a step takes twice as long.
namespace fsdpbench::clock {

inline constexpr std::string_view kNcclVersion = "2.30.7";

/// A straight line over bytes: seconds = latency + bytes × seconds_per_byte.
struct NcclEstimate {
  double latency_s = 0;
  double seconds_per_byte = 0;

  double seconds(double bytes) const { return latency_s + bytes * seconds_per_byte; }
};

/// Whether NCCL has this protocol of this algorithm; only ring and tree have LL and LL128, the latter not over PCIe.
bool nccl_has(const config::Cluster& cluster, Algorithm algorithm, Protocol protocol);

/// NCCL's estimate where can_run and nccl_has; `bytes` of the line are those of the full tensor. Left out is what is no
/// line, factors of 0.4 to 1 on trees of middle sizes; limits by channel that need more channels than there are; NVLS
/// for gathers and scatters in one node, which NCCL knows and no size makes its best.
NcclEstimate nccl_estimate(const config::Cluster& cluster, Collective collective, const GroupShape& shape,
                           Algorithm algorithm, Protocol protocol);

/// A kernel over symmetric memory as NCCL's src/sym_kernels.cc rates it, and on how many multiprocessors it runs.
struct SymmetricEstimate {
  double latency_s = 0;
  double transfer_s = 0;
  int ctas = 0;
};

/// The kernel that NCCL takes for a collective of `bytes` (of the full tensor) among `ranks` GPUs behind NVLink
/// switches that can multicast (Hopper, Blackwell), if both its buffers lie in symmetric windows: one with flags in the
/// data, or one through the switch's multicast; that of plain stores or loads never is the best of more than two GPUs.
/// NCCL takes the one of two whose time, longer by 2.5 % for each multiprocessor, is less; each runs on as few as cost
/// 2.5 % of its time. No size makes NCCL return to a ring below 64 GiB. Its rates are fitted constants of NCCL's, not
/// of this cluster.
SymmetricEstimate nccl_symmetric(const config::Cluster& cluster, Collective collective, double bytes, int ranks);

/// Whether NCCL leaves an all-gather of `elements` from each rank to copy engines though nobody asked for it, where
/// both could do it: on Blackwell, from 8 Mi elements (src/enqueue.cc of 2.30.7).
bool nccl_copies(const config::Cluster& cluster, double elements);

/// Whether NCCL would consider it at all for `automatic`.
bool nccl_offers(Algorithm algorithm, Collective collective);

}  // namespace fsdpbench::clock
