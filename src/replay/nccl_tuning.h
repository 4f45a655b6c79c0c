#pragma once

#include <string_view>

#include "config/cluster.h"
#include "replay/collective_kinds.h"

/// NCCL's own model of its collectives, from which it chooses: src/graph/tuning.cc of NCCL 2.30.7. Its latencies are
/// weights for choosing, not times of a wire: over EFA a step takes twice as long.
namespace fsdpbench::replay {

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

/// Whether NCCL would consider it at all for `automatic`.
bool nccl_offers(Algorithm algorithm, Collective collective);

}  // namespace fsdpbench::replay
