#pragma once

#include <string>
#include <vector>

#include "accept/element.h"

namespace fsdpbench::app {

/// The leaf switch of a task, of Slurm's SLURM_TOPOLOGY_ADDR ("s0.s4.node12") and SLURM_TOPOLOGY_ADDR_PATTERN
/// ("switch.switch.node"); empty: they name none.
std::string leaf_of_address(const std::string& address, const std::string& pattern);

/// Sets the switches of `cluster`: by the profile's `nodes_per_switch` (0: it does not tell), else by `leaves`, the
/// leaf of each rank as Slurm told its task. Says in a sentence who told of them, or why they are not known.
std::string tell_switches(int nodes_per_switch, const std::vector<std::string>& leaves, accept::Cluster& cluster);

}  // namespace fsdpbench::app
