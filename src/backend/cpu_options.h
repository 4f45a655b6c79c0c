#pragma once

#include <optional>
#include <vector>

#include "base/link_model.h"

namespace fsdpbench::backend {

/// What the CPU backend takes beside BackendOptions: links and computation that are emulated.
struct CpuOptions {
  std::optional<LinkModel> link;              ///< absent: transfers take what they take
  std::optional<LinkModel> pcie;              ///< absent: copies between the memories take what they take
  std::optional<double> compute_flops_per_s;  ///< absent: kernels compute; else they only take FLOPs / rate
  std::vector<double> link_slowdown;          ///< per rank, empty or factors >= 1 on the modelled link
  std::vector<double> compute_slowdown;       ///< per rank, empty or factors >= 1: a slow rank
  /// Between processes: for how long a rank waits for others to come to a collective before it calls the job stuck;
  /// absent: for ever.
  std::optional<double> stall_s;
  bool share_memory = true;  ///< processes of one host read each other's memory; else they exchange messages
};

}  // namespace fsdpbench::backend
