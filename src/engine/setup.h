#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "base/lane_pool.h"
#include "launch/placement.h"
#include "launch/session.h"
#include "model/model.h"
#include "schedule/training.h"

namespace fsdpbench::engine {

/// Everything that is decided before a run starts, the training and what it needs; run() and the reports read it and
/// decide nothing again.
struct Setup : schedule::Training {
  std::unique_ptr<model::Model> model;
  PoolStatistics memory;       ///< what a rank's steps will need of its device, from the schedule alone
  PoolStatistics host_memory;  ///< of pinned host memory likewise (fsdp.cpu_offload)
  /// Bytes a rank's pool will need at most: the steps, and bringing the parameters home after them.
  std::int64_t pool_bytes = 0;
  /// Bytes a rank will need of its host beside both pools: masters on their way to the device and back, and its trace.
  /// Records of a device's own profiler come on top; on rank 0 of a job of processes so do the others' traces.
  std::int64_t host_bytes = 0;

  /// Whether any is_offload_lane() has something to do (fsdp.cpu_offload).
  bool uses_offload_lanes() const { return host_memory.reserved > 0; }
};

/// Decides training, model and memory of a configuration that config::validate has accepted. Runs
/// nothing and allocates nothing of what it plans. Throws ResourceError if a rank would need more than 8 EiB.
Setup set_up(const config::RunConfig& config);

/// Whether processes of one host may read each other's memory: FSDPBENCH_SHARE_MEMORY, 0 or 1, which it is by default.
/// Throws ConfigError if it is neither.
bool share_memory(const launch::Environment& environment);

/// Throws ConfigError if a variable that decides how ranks meet has a value that is none, before anything is begun:
/// FSDPBENCH_STALL_S and FSDPBENCH_SHARE_MEMORY.
void check_environment(const launch::Environment& environment);

/// Options for the backend that the configuration names. `session` as in run().
backend::BackendOptions backend_options(const Setup& setup, launch::Session* session);

}  // namespace fsdpbench::engine
