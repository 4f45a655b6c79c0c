#pragma once

#include <string>
#include <vector>

#include "accept/element.h"

namespace fsdpbench::app {

/// What lies below what in a node, as NCCL (NCCL_TOPO_DUMP_FILE) or hwloc (`lstopo --of xml`) wrote it.
struct NodeTopology {
  struct Device {
    std::string busid;   ///< "0000:4e:00.0", in lower case
    std::string socket;  ///< "NUMA node 1", "socket 0"; empty: it is below none
    std::vector<std::string> bridges;  ///< PCIe switches above it, the outermost first
    std::string nic;     ///< name of the NIC that it is; empty: it is none
  };
  std::vector<Device> devices;

  /// The one at that place of the bus; null: there is none.
  const Device* find(const std::string& busid) const;
  /// The NIC that shares most PCIe switches with the device, at least one; else empty. Of several that share as many,
  /// each neighbour gets its own: the n-th device of them the n-th NIC.
  std::string nearest_nic(const Device& device) const;
};

/// Throws ConfigError that names `source` if the text is neither.
NodeTopology read_node_topology(const std::string& text, const std::string& source);

/// Tells `cluster`, whose devices are known, the nearest NIC of each rank that has none, and within one node the socket of
/// each. Says in a sentence what it told.
std::string tell_node(const NodeTopology& topology, const std::string& source, accept::Cluster& cluster);

}  // namespace fsdpbench::app
