#include "runs/world.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "config/spelling.h"
#include "engine/simulate.h"
#include "hardware/machine_facts.h"
#include "runs/simulated_machine.h"

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

/// Slow-down of a step whose memory is nearly full: T123 of profiles/published, the only dense training
/// there of which that is predicted (96 % of the GPU), took 1.25 times what other sources predict. One row, and no
/// quantile.
constexpr double kNearMemoryLimit = 1.25;

}  // namespace

World current_world(const config::RunConfig& config, const launch::Session* session,
                    std::vector<std::string> command_line) {
  static const MachineFacts kMachine = machine_facts();
  World world;
  world.program = build_info();
  world.command_line = std::move(command_line);
  world.backend = config::to_string(config.device.backend);
  // Equal seeds give equal bytes, so nothing of the moment is in a simulation's files.
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

double second_step_ms(const config::RunConfig& config, const clock::OpTimes& times) {
  if (times.own_issue.size() < 3) return 0;
  const auto sum = [](const std::vector<double>& ns) { return std::accumulate(ns.begin(), ns.end(), 0.0); };
  const double more_ns = sum(times.own_issue[1]) - sum(times.own_issue[2]);
  return std::max(0.0, more_ns * 1e-6 / static_cast<double>(config.train.steps));
}

PredictionInterval prediction_interval(const Cell& cell, const account::RunMetrics& predicted) {
  PredictionInterval result;
  result.from = cell.basis.from;
  if (!cell.basis.uncertainty) return result;
  result.ops = cell.basis.uncertainty->reach;
  result.leaves_ranks_out = cell.basis.uncertainty->leaves_ranks_out;
  clock::OpTimes times = cell.times;
  if (cell.setup.plan.groups.ranks() > engine::kMostRecordedRanks) {
    times.compute_factor.clear();
    times.link_factor.clear();
    times.delays = {};
  }
  const SteadyStep walked = steady_step(cell.setup, times);
  std::vector<double> steps, exposed;
  for (int draw = 0; draw < clock::Uncertainty::kDraws; ++draw) {
    const SteadyStep step = steady_step(cell.setup, clock::drawn(times, *cell.basis.uncertainty, draw));
    steps.push_back(step.ms);
    exposed.push_back(step.exposed_ms);
  }
  const clock::Uncertainty& uncertainty = *cell.basis.uncertainty;
  result.step_ms =
      clock::interval_around(predicted.step_ms.median, walked.ms, steps, uncertainty.step_miss * walked.ms);
  result.exposed_ms = clock::interval_around(predicted.exposed_comm_ms, walked.exposed_ms, exposed,
                                             uncertainty.exposed_miss * walked.ms);
  result.step_ms->high += second_step_ms(cell.setup.config, cell.times);
  if (cell.near_memory_limit) result.step_ms->high *= kNearMemoryLimit;
  return result;
}

}  // namespace fsdpbench::app
