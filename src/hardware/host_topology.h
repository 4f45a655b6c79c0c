#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct hwloc_topology;
struct hwloc_obj;

namespace fsdpbench::hardware {

/// Processors by the system's numbers, in rising order.
using Processors = std::vector<int>;
/// "0-3,8".
std::string to_text(const Processors& processors);

/// Path that two devices on the bus of a host share, from near to far, by the words of `nvidia-smi topo`.
enum class BusPath {
  switch_,      ///< PIX: one PCIe switch
  switches,     ///< PXB: several, and no host bridge
  host_bridge,  ///< PHB
  numa_node,    ///< NODE: another host bridge of the same NUMA node
  system,       ///< SYS: another NUMA node
};
std::string_view to_string(BusPath path);

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
  /// By hwloc's numbering, from near to far: all processors of each.
  std::vector<Processors> numa_nodes() const;
  std::vector<Processors> cores() const;
  Processors all() const;
  /// The system's number of the NUMA node that holds all of them; absent: several do.
  std::optional<int> numa_node_of(const Processors& processors) const;

  struct Nic {
    std::string name;  ///< "mlx5_0", else "eth0"
    std::string place;
  };
  std::vector<Nic> nics() const;
  /// Places of NVIDIA's GPUs.
  std::vector<std::string> gpus() const;
  /// Processors of the NUMA node that the device hangs on; empty: there is no such device, or nobody knows.
  Processors near(const std::string& place) const;
  /// Absent if one of them is not there.
  std::optional<BusPath> path(const std::string& a, const std::string& b) const;

 private:
  explicit HostTopology(hwloc_topology* topology);

  std::shared_ptr<hwloc_topology> topology_;
};

}  // namespace fsdpbench::hardware
