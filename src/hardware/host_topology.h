#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/lane.h"
#include "hardware/nvml.h"

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

/// One of the ranks of a host, and where its GPU is.
struct LocalRank {
  int rank = 0;
  int ranks = 1;
  std::string gpu;  ///< "0000:0f:00.0"; empty: it computes on processors
};

/// The processors of one rank. By `numa` those of the NUMA node that its GPU hangs on (empty where nobody knows which
/// that is); of ranks without one those of one node, neighbours sharing nodes as equally as they can be shared. By
/// `cores` a run of neighbouring cores, all their hardware threads with them; of more ranks than cores several have the
/// same. By `none` all of the host.
Processors processors_of_rank(const HostTopology& host, Binding binding, const LocalRank& rank);

/// While it lives the calling thread, and all that it starts, run on a rank's processors only: so does the memory they
/// touch first come from there. A process that its launcher had bound when the first of these was made stays as it is.
class ThreadBinding {
 public:
  /// Throws ConfigError, with what would be possible, if there are no such processors or the system refuses.
  ThreadBinding(Binding binding, const LocalRank& rank);
  /// The thread runs where it ran before.
  ~ThreadBinding();
  ThreadBinding(const ThreadBinding&) = delete;
  ThreadBinding& operator=(const ThreadBinding&) = delete;

  /// "processors 0-23 of NUMA node 0, near its GPU"; empty: nothing was asked for.
  const std::string& text() const { return text_; }

 private:
  Processors before_;  // empty: the thread was left alone
  std::string text_;
};

}  // namespace fsdpbench::hardware
