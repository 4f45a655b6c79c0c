#include "hardware/topology_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <map>
#include <optional>
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

}  // namespace

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

}  // namespace fsdpbench::hardware
