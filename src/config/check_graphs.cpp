#include "config/check_graphs.h"

#include <fmt/format.h>

#include "base/error.h"
#include "config/spelling.h"

namespace fsdpbench::config {

void check_graphs(const RunConfig& config, std::vector<std::string>& notes) {
  if (config.device.graphs == Graphs::none) return;
  if (config.device.backend == BackendKind::virtual_) {
    notes.push_back("device.graphs has no effect: device.backend is \"virtual\".");
    return;
  }
  const auto require = [](bool holds, const std::string& sentence) {
    if (!holds) throw ConfigError(sentence);
  };
  require(config.device.backend == BackendKind::cuda,
          "device.graphs = \"step\" needs device.backend = \"cuda\": CUDA graphs are launched on GPUs alone.");
  require(config.device.timer != Timer::cupti,
          "device.timer = \"cupti\" does not go with device.graphs = \"step\": its records name ops by what the host "
          "launched for each, and of a graph that is one thing; expected \"auto\" or \"events\".");
  require(
      config.device.memory == DeviceMemory::fixed,
      "device.memory = \"pool\" does not go with device.graphs = \"step\": a graph keeps the addresses of its blocks; "
      "expected \"fixed\".");
  require(config.fsdp.cpu_offload == CpuOffload::none,
          fmt::format("fsdp.cpu_offload = \"{}\" does not go with device.graphs = \"step\": the host's updates are "
                      "not captured; expected \"none\".",
                      to_string(config.fsdp.cpu_offload)));
  require(config.inject.jitter_us == 0,
          fmt::format("inject.jitter_us = {} does not go with device.graphs = \"step\": every launch would repeat what "
                      "was drawn when the graph was captured; expected 0.",
                      config.inject.jitter_us));
}

}  // namespace fsdpbench::config
