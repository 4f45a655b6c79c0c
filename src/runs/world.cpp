#include "runs/world.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "config/spelling.h"
#include "hardware/machine_facts.h"

namespace fsdpbench::app {
namespace {

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S%z}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

/// A fact of rank 0's place; empty if it does not say, or before the trial.
std::string fact(const World& world, std::string_view name) {
  if (world.places.empty()) return "";
  for (const auto& [key, value] : world.places.front().device) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace

World current_world(const config::RunConfig& config, const launch::Session* session,
                    std::vector<std::string> command_line) {
  static const MachineFacts kMachine = machine_facts();
  World world;
  world.program = build_info();
  world.command_line = std::move(command_line);
  world.backend = config::to_string(config.device.backend);
  // The same seed gives the same bytes, so nothing of the moment is in a simulation's files.
  world.date = world.simulated() ? "" : date_now();
  world.ranks = static_cast<int>(config.mesh.ranks);
  world.launcher = session != nullptr  ? session->placement().source
                   : world.simulated() ? "computed clock"
                                       : "threads of one process";
  if (session != nullptr) world.transport = session->transport();
  world.cpu = kMachine.cpu;
  world.threads = kMachine.threads;
  world.memory_bytes = kMachine.memory_bytes;
  world.kernel = kMachine.kernel;
  world.realtime = kMachine.realtime;
  world.libraries = kMachine.libraries;
  std::ranges::sort(world.libraries);
  world.emulated_link = config.emulate.link_gb_per_s.has_value() || config.emulate.pcie_gb_per_s.has_value();
  world.emulated_compute = config.emulate.compute_tflops.has_value();
  return world;
}

bool same_program_and_machine(const World& a, const World& b) {
  const auto host = [](const World& w) { return w.places.empty() ? std::string() : w.places.front().host; };
  const std::string gpu_a = fact(a, "GPU"), gpu_b = fact(b, "GPU");
  if (!gpu_a.empty() && !gpu_b.empty() && gpu_a != gpu_b) return false;
  return a.program == b.program && a.libraries == b.libraries && a.cpu == b.cpu && a.threads == b.threads &&
         a.kernel == b.kernel && a.realtime == b.realtime && host(a) == host(b);
}

}  // namespace fsdpbench::app
