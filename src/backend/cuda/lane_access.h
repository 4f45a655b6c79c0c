#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "backend/device.h"
#include "launch/clock_offset.h"

namespace fsdpbench::backend::cuda {

/// Access that a communicator needs to the device whose lanes it uses.
class LaneAccess {
 public:
  virtual ~LaneAccess() = default;

  virtual cudaStream_t stream(Lane lane) = 0;
  /// Calls `work` at once; what it enqueues on the lane's stream is one op: timed if `stamp` is not null, known by
  /// `name` to the watchdog and to profilers.
  virtual void run_op(Lane lane, const char* name, const std::function<void(cudaStream_t)>& work, Stamp* stamp) = 0;
  /// Asked wherever the host waits for the GPU, at least every 10 ms: throws BackendError if the watched thing has
  /// failed. At most one.
  virtual void watch(std::function<void()> check) = 0;
  virtual launch::Abort& abort() = 0;
  /// The kernels of the lane's stream, for what NCCL is not needed for: scaling in a group of one rank.
  virtual Kernels& kernels(Lane lane) = 0;
  /// All memory that collectives will be called with, and little else, as one region (nccl/registered_arena.h); empty
  /// if it is not one. Asked for if the run wants buffers registered.
  virtual std::span<std::byte> communication_memory() { return {}; }
};

}  // namespace fsdpbench::backend::cuda
