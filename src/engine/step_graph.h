#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/device.h"
#include "backend/communicator.h"
#include "config/run_config.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// The repeating step of one rank as a graph, and what its launches do beside what the device does.
struct StepGraph {
  backend::Device::Graph number = 0;
  std::vector<std::size_t> changing;        ///< ops whose host data are others in every step
  std::vector<trace::MemorySample> memory;  ///< of its allocations and frees, in issue order
  backend::WireBytes wire_bytes{};          ///< of a launch
};

/// Whether the run's steady steps are launched as graphs; then the first of them in which nothing is copied beside is
/// issued op by op, and the next captured.
bool launches_graphs(const config::RunConfig& config);

/// For how many steps, from the first on, memory is laid out block by block. A launch takes the places that were found
/// when the step was captured. At most, where checkpoints are copied beside steps, which are issued op by op then.
std::int64_t laid_out_steps(const config::RunConfig& config, const schedule::Schedules& schedules);

/// Throws ConfigError if they shall be and cannot: the host waits in a step, or the warm-up is over before one has been
/// captured. Names the keys and what would do.
void check_step_graph(const config::RunConfig& config, const schedule::Schedules& schedules);

}  // namespace fsdpbench::engine
