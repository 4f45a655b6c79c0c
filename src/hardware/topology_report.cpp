#include "hardware/topology_report.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "hardware/topology_matrix.h"

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
