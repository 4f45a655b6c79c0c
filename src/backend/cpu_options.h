#pragma once

#include <optional>
#include <vector>

#include "base/link_model.h"

namespace fsdpbench::backend {

/// What the CPU backend takes beside BackendOptions: links and computation that are emulated.
struct CpuOptions {
  std::optional<LinkModel> link;              ///< absent: transfers take what they take
  std::optional<double> compute_flops_per_s;  ///< absent: kernels compute; else they only take FLOPs / rate
  std::vector<double> link_slowdown;          ///< per rank, empty or factors >= 1 on the modelled link
  std::vector<double> compute_slowdown;       ///< per rank, empty or factors >= 1: a slow rank
};

}  // namespace fsdpbench::backend
