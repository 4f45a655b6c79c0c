#pragma once

#include <cstdint>

#include "clock/collective_cost.h"
#include "clock/compute_cost.h"
#include "clock/op_times.h"
#include "config/cluster.h"
#include "schedule/training.h"

namespace fsdpbench::clock {

/// Facts on a training's use of a cluster that are not in its configuration.
struct ClusterUse {
  Framework framework;
  bool measured = false;  ///< products and attention take what Cluster::measured says
  Algorithm algorithm = Algorithm::automatic;
  Placement placement = Placement::packed;
  bool contention = true;  ///< computation is slower while collectives run, as slowdown_beside_collective() says
};

/// Bytes that libraries of kernels hold of PyTorch's allocator: OpTimes::workspace_bytes.
std::int64_t library_bytes(const config::Cluster& cluster);

/// Times of all ops of the schedules on GPUs of `cluster`: computation and copies by compute_cost.h, collectives by
/// collective_cost.h, copies over PCIe and the host's updates by the rates of cluster.host. Throws ConfigError if
/// there are such ops and the cluster does not say. The ranks must fit (config::check_fits). The host by host_issue.h.
///
/// With contention (contention.h) what runs beside collectives takes longer.
OpTimes cluster_times(const schedule::Training& training, const config::Cluster& cluster, const ClusterUse& use = {});

}  // namespace fsdpbench::clock
