#include "hardware/host_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::hardware {
namespace {

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;  // PCI's class of GPUs

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

/// Word of `nvidia-smi topo` for the path that two devices on the bus of a host share. `?`: one of them is not there.
std::string_view bus_path(hwloc_topology_t topology, const std::string& a, const std::string& b) {
  const std::vector<hwloc_obj_t> of_a = chain_of(device_at(topology, a)), of_b = chain_of(device_at(topology, b));
  if (of_a.empty() || of_b.empty()) return "?";
  const hwloc_obj_t meeting = *std::ranges::find_first_of(of_a, of_b);
  if (is_host_bridge(meeting)) return "PHB";
  if (meeting->type != HWLOC_OBJ_BRIDGE && meeting->type != HWLOC_OBJ_PCI_DEVICE) {
    return hwloc_bitmap_weight(meeting->nodeset) == 1 ? "NODE" : "SYS";
  }
  // A switch has a port of its own for each device: one bridge between them and the one where they meet.
  const auto bridges = [&](const std::vector<hwloc_obj_t>& chain) {
    return std::ranges::find(chain, meeting) - chain.begin() - 1;
  };
  return bridges(of_a) <= 1 && bridges(of_b) <= 1 ? "PIX" : "PXB";
}

/// "mlx5_0", else "eth0"; empty: the device is no network card.
std::string network_name(hwloc_obj_t device) {
  std::string ethernet;
  for (hwloc_obj_t os = device->io_first_child; os != nullptr; os = os->next_sibling) {
    if (os->type != HWLOC_OBJ_OS_DEVICE || os->name == nullptr) continue;
    if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) return os->name;
    if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && ethernet.empty()) ethernet = os->name;
  }
  return ethernet;
}

}  // namespace

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

std::string HostTopology::paths_text(const std::string& place, const std::shared_ptr<const Nvml>& nvml) const {
  const hwloc_topology_t topology = topology_.get();
  std::vector<std::string> places;
  std::vector<NvmlGpu> gpus;
  for (int i = 0; nvml != nullptr && i < nvml->gpus(); ++i) {
    places.push_back(gpus.emplace_back(nvml, nvml->gpu(i)).place());
  }
  std::vector<std::string> cards;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    const std::string there = place_of(device), name = network_name(device);
    if (nvml == nullptr && pci.vendor_id == kNvidia && pci.class_id >> 8U == kDisplay) places.push_back(there);
    if (!name.empty()) cards.push_back(fmt::format("{} {}", name, bus_path(topology, place, there)));
  }
  const auto found = std::ranges::find(places, place);
  if (found == places.end()) return "";
  const std::size_t mine = found - places.begin();
  const auto path_to = [&](std::size_t to) -> std::string {
    if (!gpus.empty()) {
      const std::size_t count = links_to(gpus[mine].active_links(), places[to], has_switch(gpus[to].active_links()));
      if (count > 0) return fmt::format("NV{}", count);
      if (const std::optional<int> level = gpus[mine].common_ancestor(gpus[to])) return word_of(*level);
    }
    return std::string(bus_path(topology, place, places[to]));
  };
  std::map<std::string, int> counts;
  for (std::size_t to = 0; to < places.size(); ++to) {
    if (to != mine) ++counts[path_to(to)];
  }
  std::vector<std::string> parts;
  for (const auto& [path, count] : counts) {
    parts.push_back(fmt::format("{} to {} GPU{}", path, count, count == 1 ? "" : "s"));
  }
  if (!cards.empty()) parts.push_back(fmt::format("{}", fmt::join(cards, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace fsdpbench::hardware
