#pragma once

#include <vector>

#include "base/link_model.h"
#include "clock/op_times.h"
#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "schedule/training.h"

namespace fsdpbench::clock {

/// Assumed rates of every rank and its link.
struct Rates {
  double flops_per_second = 0;
  LinkModel link;    ///< looked at only if there is a collective
  LinkModel pcie{};  ///< looked at only if something is copied between host and device
};

/// FLOPs of an op's matrix products and attention, for one microbatch; 0 for all but forward, recomputation and
/// backward. `sizes`: of each module.
double flops_of(const schedule::Op& op, const std::vector<plan::ModuleSizes>& sizes);

/// Op times of the CPU backend's emulation of link and compute: computation its FLOPs / rate; a collective of n ranks
/// n-1 latencies, and then the bytes of a ring over the rank's one link, an all-reduce both twice; a copy over PCIe one
/// latency and its bytes; all else nothing.
/// The host takes no time.
OpTimes emulated_times(const schedule::Training& training, const Rates& rates);

/// Injected trouble, but for injected syncs, which are ops of the schedule. `seed`: train.seed.
void add_trouble(const config::Inject& inject, std::uint64_t seed, int ranks, OpTimes& times);

}  // namespace fsdpbench::clock
