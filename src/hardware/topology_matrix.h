#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hardware/host_topology.h"
#include "hardware/nvml.h"
#include "record/table.h"

namespace fsdpbench::hardware {

/// The GPUs and network cards of a host, and what each two of them share.
struct TopologyMatrix {
  struct Device {
    std::string name;   ///< "GPU 0", "mlx5_0"
    std::string place;  ///< "0000:0f:00.0"
    bool is_gpu = false;
    Processors near;               ///< of its NUMA node; empty: not known
    std::optional<int> numa_node;  ///< the system's number; absent: not known
  };
  std::vector<Device> devices;  ///< GPUs, then network cards
  /// [from][to]: "NV18" (so many NVLinks), else a BusPath's word; "X" of itself, "?" where nobody knows.
  std::vector<std::vector<std::string>> paths;
};

/// `nvml` may be null: then GPUs are those on the bus, and their NVLinks are not known.
TopologyMatrix topology_matrix(const HostTopology& host, const std::shared_ptr<const Nvml>& nvml);

/// Paths of the device at `place`, "NV18 to 7 GPUs; mlx5_0 PIX, mlx5_1 SYS"; empty: it is not there.
std::string paths_text(const TopologyMatrix& matrix, const std::string& place);

}  // namespace fsdpbench::hardware

namespace fsdpbench::app {

/// Table of what GPUs and network cards here share, and their processors: hardware/topology_matrix.h. No rows where
/// there are neither.
Table topology_table();
/// JSON of it; null where there are neither.
nlohmann::json topology_json();

/// Below the table.
inline constexpr const char* kTopologyWords =
    "NV n: n NVLinks; over PCIe PIX: one switch, PXB: several, PHB: a host bridge, NODE: two of one NUMA node, SYS: "
    "another NUMA node\n";

}  // namespace fsdpbench::app
