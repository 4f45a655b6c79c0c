#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "backend/device.h"
#include "launch/abort.h"

namespace fsdpbench::backend::cuda {

/// What a communicator needs of the device whose lanes it uses.
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
};

}  // namespace fsdpbench::backend::cuda
