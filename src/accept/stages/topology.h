#pragma once

#include <string>
#include <vector>

#include "accept/element.h"

namespace fsdpbench::app {

/// What somebody knows of the switches that connect nodes.
struct Topology {
  int nodes_per_switch = 0;  ///< of nodes in the order of their ranks; 0: not told
  /// Slurm's topology.conf, what `scontrol show topology` prints, or `kubectl get nodes -o json`; empty: not told
  std::string switches;
  std::string source;       ///< where the text is from
  std::string node;         ///< NCCL's or hwloc's XML of a node (node_topology.h); empty: not told
  std::string node_source;  ///< likewise
};

/// The leaf switch of a task, of Slurm's SLURM_TOPOLOGY_ADDR ("s0.s4.node12") and SLURM_TOPOLOGY_ADDR_PATTERN
/// ("switch.switch.node"); empty: they name none.
std::string leaf_of_address(const std::string& address, const std::string& pattern);

/// Throws ConfigError if a text of `told` is not what it should be: before anything is measured.
void check_topology(const Topology& told);

/// Sets the switches of `cluster`, whose hosts are known: by `told`, else by `leaves`, the leaf of each rank as Slurm told
/// its task. Says in a sentence who told of them, or why they are not known.
std::string tell_switches(const Topology& told, const std::vector<std::string>& leaves, accept::Cluster& cluster);

}  // namespace fsdpbench::app
