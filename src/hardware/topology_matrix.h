#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hardware/host_topology.h"
#include "hardware/nvml.h"

namespace fsdpbench::hardware {

/// The GPUs and network cards of a host, and what each two of them share.
struct TopologyMatrix {
  struct Device {
    std::string name;   ///< "GPU 0", "mlx5_0"
    std::string place;  ///< "0000:0f:00.0"
    bool is_gpu = false;
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
