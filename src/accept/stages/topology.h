#pragma once

#include <string>
#include <vector>

#include "accept/element.h"
#include "accept/link_parts.h"
#include "accept/verdict.h"
#include "config/accuracy.h"

namespace fsdpbench::app {

/// The leaf switch of a task, of Slurm's SLURM_TOPOLOGY_ADDR ("s0.s4.node12") and SLURM_TOPOLOGY_ADDR_PATTERN
/// ("switch.switch.node"); empty: they name none.
std::string leaf_of_address(const std::string& address, const std::string& pattern);

/// Sets the switches of `cluster`: by the profile's `nodes_per_switch` (0: it does not tell), else by `leaves`, the leaf of
/// each rank as Slurm told its task. Says in a sentence who told of them, or why they are not known.
std::string tell_switches(int nodes_per_switch, const std::vector<std::string>& leaves, accept::Cluster& cluster);

/// Rates of nodes beside the fabric, all ranks at once. Rounds are [round][rank].
struct NodeRates {
  std::string unknown_because;       ///< why none of it was asked for, without a full stop; empty: it was
  bool has_gpus = false;             ///< else there are neither copies to and from devices nor launches
  accept::DeviceRounds host_copy;    ///< bytes read and written a second by the processors
  accept::DeviceRounds to_device;    ///< bytes a second, from page-locked memory of the host
  accept::DeviceRounds from_device;  ///< likewise, to it
  accept::DeviceRounds launch_us;    ///< from the launch of a kernel with next to no work until the host knows its end
};

/// Each rank is compared with the profile's reference by itself, because one bad host of sixty is no matter for their
/// median: those that do not pass are named; if none reaches it, or all do, one judgement is of all. Without a
/// reference a figure is unrated. What could not be measured is unrated, with the reason, and inconclusive where the
/// profile has a reference for it.
std::vector<accept::Judgement> judge_node_rates(const config::Acceptance& wanted, const NodeRates& rates,
                                                const std::vector<std::string>& hosts);

}  // namespace fsdpbench::app
