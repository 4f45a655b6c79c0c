#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hardware/nvml.h"

struct hwloc_topology;

namespace fsdpbench::hardware {

/// Topology of a host's processors, memory and devices, by hwloc. It does not change once made; thread-safe.
/// Devices are named by their places on the bus, "0000:0f:00.0".
class HostTopology {
 public:
  /// This host, read once a process; what HWLOC_XMLFILE and HWLOC_SYNTHETIC describe where they are set. Null if hwloc
  /// cannot read it.
  static std::shared_ptr<const HostTopology> of_this_host();
  /// "node:2 core:4 pu:2", and a file of lstopo. Null if they describe none.
  static std::shared_ptr<const HostTopology> from_synthetic(const std::string& description);
  static std::shared_ptr<const HostTopology> from_xml(const std::string& file);

  struct Counts {
    int packages = 0;
    int cores = 0;
    int numa_nodes = 0;
    std::int64_t l3_bytes = 0;  ///< of one L3 cache; 0: there is none
    std::string model;          ///< of the first package; empty: not known
  };
  Counts counts() const;

  /// Paths of the GPU at `place` to the others and to network cards: "NV18 to 7 GPUs; mlx5_0 PIX, mlx5_1 SYS", in the
  /// words of `nvidia-smi topo`; NV18: so many NVLinks, "?": nobody knows. Empty: it is not there. `nvml` may be null:
  /// then GPUs are those on the bus, and their NVLinks are not known.
  std::string paths_text(const std::string& place, const std::shared_ptr<const Nvml>& nvml) const;

 private:
  explicit HostTopology(hwloc_topology* topology);

  std::shared_ptr<hwloc_topology> topology_;
};

}  // namespace fsdpbench::hardware
