#include "hardware/host_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <sched.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace fsdpbench::hardware {
namespace {

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;  // PCI's class of GPUs

Processors processors_of(hwloc_const_bitmap_t set) {
  Processors all;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) all.push_back(i);
  return all;
}

std::vector<Processors> sets_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::vector<Processors> all;
  for (hwloc_obj_t obj = nullptr; (obj = hwloc_get_next_obj_by_type(topology, type, obj)) != nullptr;) {
    if (!hwloc_bitmap_iszero(obj->cpuset)) all.push_back(processors_of(obj->cpuset));
  }
  return all;
}

std::string place_of(hwloc_obj_t device) {
  const auto& pci = device->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{}", pci.domain, pci.bus, pci.dev, pci.func);
}

hwloc_obj_t device_at(hwloc_topology_t topology, const std::string& place) {
  return place.empty() ? nullptr : hwloc_get_pcidev_by_busidstring(topology, place.c_str());
}

std::vector<hwloc_obj_t> chain_of(hwloc_obj_t obj) {
  std::vector<hwloc_obj_t> chain;
  for (; obj != nullptr; obj = obj->parent) chain.push_back(obj);
  return chain;
}

bool is_host_bridge(hwloc_obj_t obj) {
  return obj->type == HWLOC_OBJ_BRIDGE && obj->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

using MakeTopology = std::function<int(hwloc_topology_t)>;

/// Null if hwloc does not like it. Components that start a GPU's runtime are left out: NVML is asked elsewhere. So is
/// libpciaccess, which loses memory: hwloc reads the same from sysfs.
hwloc_topology_t load(const MakeTopology& describe) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  for (const char* component : {"cuda", "nvml", "opencl", "gl", "levelzero", "rsmi", "pci"}) {
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (describe(topology) == 0 && hwloc_topology_load(topology) == 0) return topology;
  hwloc_topology_destroy(topology);
  return nullptr;
}

/// NVLinks of a GPU that end at the one at `place`, or at a switch that leads there, too.
std::size_t links_to(const std::vector<NvmlGpu::Link>& links, const std::string& place, bool switched) {
  return static_cast<std::size_t>(std::ranges::count_if(
      links, [&](const NvmlGpu::Link& link) { return link.to_switch ? switched : link.place == place; }));
}

bool has_switch(const std::vector<NvmlGpu::Link>& links) {
  return std::ranges::any_of(links, &NvmlGpu::Link::to_switch);
}

/// NVML's common ancestors, from 0 to 50.
std::string word_of(int level) {
  if (level <= 10) return "PIX";
  if (level <= 20) return "PXB";
  if (level <= 30) return "PHB";
  return level <= 40 ? "NODE" : "SYS";
}

constexpr int kMostProcessors = 8192;

/// A set of processors as the kernel takes it, for more of them than cpu_set_t has.
struct KernelSet {
  cpu_set_t* bits = CPU_ALLOC(kMostProcessors);
  std::size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
  KernelSet() { CPU_ZERO_S(bytes, bits); }
  ~KernelSet() { CPU_FREE(bits); }
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;
};

/// That the calling thread may use.
Processors current_processors() {
  const KernelSet set;
  Processors all;
  if (sched_getaffinity(0, set.bytes, set.bits) != 0) return all;
  for (int i = 0; i < kMostProcessors; ++i) {
    if (CPU_ISSET_S(i, set.bytes, set.bits)) all.push_back(i);
  }
  return all;
}

bool use_processors(const Processors& processors) {
  const KernelSet set;
  for (const int i : processors) CPU_SET_S(i, set.bytes, set.bits);
  return sched_setaffinity(0, set.bytes, set.bits) == 0;
}

/// Processors that the launcher left this process of its host's; all of them: it has not bound it.
const Processors& given_by_launcher() {
  static const Processors kGiven = current_processors();
  return kGiven;
}

}  // namespace

std::string to_text(const Processors& processors) {
  std::string text;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", processors[i]);
    if (last > i) text += fmt::format("-{}", processors[last]);
    i = last + 1;
  }
  return text;
}

std::string_view to_string(BusPath path) {
  switch (path) {
    case BusPath::switch_: return "PIX";
    case BusPath::switches: return "PXB";
    case BusPath::host_bridge: return "PHB";
    case BusPath::numa_node: return "NODE";
    case BusPath::system: break;
  }
  return "SYS";
}

HostTopology::HostTopology(hwloc_topology* topology) : topology_(topology, hwloc_topology_destroy) {}

std::shared_ptr<const HostTopology> HostTopology::of_this_host() {
  static const std::shared_ptr<const HostTopology> kThis = [] {
    hwloc_topology* const topology = load([](hwloc_topology_t) { return 0; });
    return std::shared_ptr<const HostTopology>(topology == nullptr ? nullptr : new HostTopology(topology));
  }();
  return kThis;
}

std::shared_ptr<const HostTopology> HostTopology::from_synthetic(const std::string& description) {
  hwloc_topology* const topology =
      load([&](hwloc_topology_t t) { return hwloc_topology_set_synthetic(t, description.c_str()); });
  return std::shared_ptr<const HostTopology>(topology == nullptr ? nullptr : new HostTopology(topology));
}

std::shared_ptr<const HostTopology> HostTopology::from_xml(const std::string& file) {
  hwloc_topology* const topology = load([&](hwloc_topology_t t) { return hwloc_topology_set_xml(t, file.c_str()); });
  return std::shared_ptr<const HostTopology>(topology == nullptr ? nullptr : new HostTopology(topology));
}

HostTopology::Counts HostTopology::counts() const {
  const hwloc_topology_t all = topology_.get();
  Counts counts{hwloc_get_nbobjs_by_type(all, HWLOC_OBJ_PACKAGE), hwloc_get_nbobjs_by_type(all, HWLOC_OBJ_CORE),
                hwloc_get_nbobjs_by_type(all, HWLOC_OBJ_NUMANODE), 0, ""};
  if (const hwloc_obj_t package = hwloc_get_obj_by_type(all, HWLOC_OBJ_PACKAGE, 0)) {
    if (const char* name = hwloc_obj_get_info_by_name(package, "CPUModel")) counts.model = name;
  }
  if (const hwloc_obj_t l3 = hwloc_get_obj_by_type(all, HWLOC_OBJ_L3CACHE, 0)) {
    counts.l3_bytes = static_cast<std::int64_t>(l3->attr->cache.size);
  }
  return counts;
}

std::vector<Processors> HostTopology::numa_nodes() const { return sets_of(topology_.get(), HWLOC_OBJ_NUMANODE); }
std::vector<Processors> HostTopology::cores() const { return sets_of(topology_.get(), HWLOC_OBJ_CORE); }
Processors HostTopology::all() const { return processors_of(hwloc_get_root_obj(topology_.get())->cpuset); }

std::optional<int> HostTopology::numa_node_of(const Processors& processors) const {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    const auto inside = [&](int p) { return hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(p)) != 0; };
    if (!processors.empty() && std::ranges::all_of(processors, inside)) return static_cast<int>(node->os_index);
  }
  return std::nullopt;
}

std::vector<HostTopology::Nic> HostTopology::nics() const {
  std::vector<Nic> all;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology_.get(), device)) != nullptr;) {
    std::string ethernet;
    std::string fabric;
    for (hwloc_obj_t os = device->io_first_child; os != nullptr; os = os->next_sibling) {
      if (os->type != HWLOC_OBJ_OS_DEVICE || os->name == nullptr) continue;
      if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) fabric = os->name;
      if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && ethernet.empty()) ethernet = os->name;
    }
    const std::string& name = fabric.empty() ? ethernet : fabric;
    if (!name.empty()) all.push_back({name, place_of(device)});
  }
  return all;
}

std::vector<std::string> HostTopology::gpus() const {
  std::vector<std::string> all;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology_.get(), device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    if (pci.vendor_id == kNvidia && pci.class_id >> 8U == kDisplay) all.push_back(place_of(device));
  }
  return all;
}

Processors HostTopology::near(const std::string& place) const {
  const hwloc_obj_t device = device_at(topology_.get(), place);
  if (device == nullptr) return {};
  const hwloc_obj_t host = hwloc_get_non_io_ancestor_obj(topology_.get(), device);
  // The ancestor of a device whose firmware tells no locality is the whole machine.
  if (host == nullptr || hwloc_bitmap_weight(host->nodeset) != 1) return {};
  return processors_of(host->cpuset);
}

std::optional<BusPath> HostTopology::path(const std::string& a, const std::string& b) const {
  const std::vector<hwloc_obj_t> of_a = chain_of(device_at(topology_.get(), a));
  const std::vector<hwloc_obj_t> of_b = chain_of(device_at(topology_.get(), b));
  if (of_a.empty() || of_b.empty()) return std::nullopt;
  const auto shared = std::ranges::find_first_of(of_a, of_b);
  const hwloc_obj_t meeting = *shared;
  if (is_host_bridge(meeting)) return BusPath::host_bridge;
  if (meeting->type != HWLOC_OBJ_BRIDGE && meeting->type != HWLOC_OBJ_PCI_DEVICE) {
    return hwloc_bitmap_weight(meeting->nodeset) == 1 ? BusPath::numa_node : BusPath::system;
  }
  // A switch has a port of its own for each device: one bridge between them and the one where they meet.
  const auto bridges = [&](const std::vector<hwloc_obj_t>& chain) {
    return std::ranges::find(chain, meeting) - chain.begin() - 1;
  };
  return bridges(of_a) <= 1 && bridges(of_b) <= 1 ? BusPath::switch_ : BusPath::switches;
}

TopologyMatrix topology_matrix(const HostTopology& host, const std::shared_ptr<const Nvml>& nvml) {
  TopologyMatrix matrix;
  std::vector<NvmlGpu> gpus;
  std::vector<std::vector<NvmlGpu::Link>> links;
  if (nvml != nullptr) {
    for (int i = 0; i < nvml->gpus(); ++i) {
      NvmlGpu gpu(nvml, nvml->gpu(i));
      matrix.devices.push_back({fmt::format("GPU {}", i), gpu.place(), true});
      links.push_back(gpu.active_links());
      gpus.push_back(std::move(gpu));
    }
  } else {
    const std::vector<std::string> places = host.gpus();
    for (std::size_t i = 0; i < places.size(); ++i) {
      matrix.devices.push_back({fmt::format("GPU {}", i), places[i], true});
    }
  }
  for (const HostTopology::Nic& nic : host.nics()) matrix.devices.push_back({nic.name, nic.place, false});
  for (std::size_t from = 0; from < matrix.devices.size(); ++from) {
    std::vector<std::string>& row = matrix.paths.emplace_back();
    for (std::size_t to = 0; to < matrix.devices.size(); ++to) {
      const std::string& there = matrix.devices[to].place;
      if (from == to) {
        row.emplace_back("X");
        continue;
      }
      if (from < gpus.size() && to < gpus.size()) {
        const std::size_t count = links_to(links[from], there, has_switch(links[to]));
        if (count > 0) {
          row.push_back(fmt::format("NV{}", count));
          continue;
        }
        if (const std::optional<int> level = gpus[from].common_ancestor(gpus[to])) {
          row.push_back(word_of(*level));
          continue;
        }
      }
      const std::optional<BusPath> path = host.path(matrix.devices[from].place, there);
      row.emplace_back(path ? to_string(*path) : "?");
    }
  }
  return matrix;
}

std::string paths_text(const TopologyMatrix& matrix, const std::string& place) {
  const auto mine = std::ranges::find(matrix.devices, place, &TopologyMatrix::Device::place);
  if (mine == matrix.devices.end()) return "";
  const std::vector<std::string>& row = matrix.paths[mine - matrix.devices.begin()];
  std::map<std::string, int> gpus;
  std::vector<std::string> parts;
  std::vector<std::string> nics;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == "X") continue;
    if (matrix.devices[i].is_gpu) {
      ++gpus[row[i]];
    } else {
      nics.push_back(matrix.devices[i].name + " " + row[i]);
    }
  }
  for (const auto& [path, count] : gpus)
    parts.push_back(fmt::format("{} to {} GPU{}", path, count, count == 1 ? "" : "s"));
  if (!nics.empty()) parts.push_back(fmt::format("{}", fmt::join(nics, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

Processors processors_of_rank(const HostTopology& host, Binding binding, const LocalRank& rank) {
  if (binding == Binding::none) return host.all();
  if (binding == Binding::numa && !rank.gpu.empty()) {
    return host.numa_nodes().size() == 1 ? host.all() : host.near(rank.gpu);
  }
  const std::vector<Processors> parts = binding == Binding::numa ? host.numa_nodes() : host.cores();
  if (parts.empty()) return {};
  const auto part_before = [&](int of_rank) {
    return parts.size() * static_cast<std::size_t>(of_rank) / static_cast<std::size_t>(rank.ranks);
  };
  const std::size_t first = part_before(rank.rank);
  if (binding == Binding::numa) return parts[first];
  Processors all;
  for (std::size_t part = first; part < std::max(part_before(rank.rank + 1), first + 1); ++part) {
    all.insert(all.end(), parts[part].begin(), parts[part].end());
  }
  std::ranges::sort(all);
  return all;
}

ThreadBinding::ThreadBinding(Binding binding, const LocalRank& rank) {
  const Processors& given = given_by_launcher();
  if (binding == Binding::none) return;
  const std::shared_ptr<const HostTopology> host = HostTopology::of_this_host();
  if (host == nullptr)
    throw ConfigError("device.bind cannot be kept: hwloc cannot read this machine's topology; \"none\" works.");
  if (!std::ranges::includes(given, host->all())) {
    text_ = fmt::format("processors {}, as its launcher bound it; device.bind changes nothing", to_text(given));
    return;
  }
  const Processors wanted = processors_of_rank(*host, binding, rank);
  if (wanted.empty()) {
    throw ConfigError(
        fmt::format("device.bind = \"numa\" cannot be kept: this machine does not say which NUMA node the GPU at {} "
                    "hangs on; \"none\" works.",
                    rank.gpu));
  }
  before_ = current_processors();
  if (!use_processors(wanted)) {
    throw ConfigError(
        fmt::format("device.bind cannot be kept: the system does not let this process choose processors {} ({}); "
                    "\"none\" works.",
                    to_text(wanted), std::strerror(errno)));
  }
  text_ = fmt::format("processors {}", to_text(wanted));
  if (const std::optional<int> node = host->numa_node_of(wanted)) text_ += fmt::format(" of NUMA node {}", *node);
  if (!rank.gpu.empty()) text_ += ", near its GPU";
}

ThreadBinding::~ThreadBinding() {
  if (!before_.empty()) use_processors(before_);
}

}  // namespace fsdpbench::hardware
