#include "hardware/topology_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace fsdpbench::hardware {
namespace {

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

TopologyMatrix::Device device(const HostTopology& host, std::string name, std::string place, bool is_gpu) {
  TopologyMatrix::Device d{std::move(name), std::move(place), is_gpu, {}, {}};
  d.near = host.numa_nodes().size() == 1 ? host.all() : host.near(d.place);
  d.numa_node = host.numa_node_of(d.near);
  return d;
}

}  // namespace

TopologyMatrix topology_matrix(const HostTopology& host, const std::shared_ptr<const Nvml>& nvml) {
  TopologyMatrix matrix;
  std::vector<NvmlGpu> gpus;
  std::vector<std::vector<NvmlGpu::Link>> links;
  if (nvml != nullptr) {
    for (int i = 0; i < nvml->gpus(); ++i) {
      NvmlGpu gpu(nvml, nvml->gpu(i));
      matrix.devices.push_back(device(host, fmt::format("GPU {}", i), gpu.place(), true));
      links.push_back(gpu.active_links());
      gpus.push_back(std::move(gpu));
    }
  } else {
    const std::vector<std::string> places = host.gpus();
    for (std::size_t i = 0; i < places.size(); ++i) {
      matrix.devices.push_back(device(host, fmt::format("GPU {}", i), places[i], true));
    }
  }
  for (const HostTopology::Nic& nic : host.nics()) matrix.devices.push_back(device(host, nic.name, nic.place, false));
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

}  // namespace fsdpbench::hardware

namespace fsdpbench::app {
namespace {

hardware::TopologyMatrix this_host() {
  const std::shared_ptr<const hardware::HostTopology> host = hardware::HostTopology::of_this_host();
  if (host == nullptr) return {};
  std::string why_not;
  return hardware::topology_matrix(*host, hardware::Nvml::open(why_not));
}

}  // namespace

Table topology_table() {
  const hardware::TopologyMatrix matrix = this_host();
  Table table;
  table.title = "GPUs and network cards";
  table.header = {""};
  for (const auto& device : matrix.devices) table.header.push_back(device.name);
  table.header.insert(table.header.end(), {"NUMA node", "processors"});
  for (std::size_t i = 0; i < matrix.devices.size(); ++i) {
    const hardware::TopologyMatrix::Device& device = matrix.devices[i];
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(device.name);
    row.insert(row.end(), matrix.paths[i].begin(), matrix.paths[i].end());
    row.push_back(device.numa_node ? std::to_string(*device.numa_node) : "?");
    row.push_back(device.near.empty() ? "?" : hardware::to_text(device.near));
  }
  return table;
}

nlohmann::json topology_json() {
  const hardware::TopologyMatrix matrix = this_host();
  if (matrix.devices.empty()) return nullptr;
  nlohmann::json j{{"devices", nlohmann::json::array()}, {"paths", matrix.paths}};
  for (const hardware::TopologyMatrix::Device& device : matrix.devices) {
    nlohmann::json& entry = j["devices"].emplace_back(nlohmann::json{{"name", device.name}, {"place", device.place}});
    if (device.numa_node) entry["numa_node"] = *device.numa_node;
    if (!device.near.empty()) entry["processors"] = hardware::to_text(device.near);
  }
  return j;
}

}  // namespace fsdpbench::app
