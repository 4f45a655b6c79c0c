#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "backend/device.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// The lane host_compute: its ops run on the host, in the order of a stream, so that events order them with all other
/// lanes.
///
/// [Note: ops on the host]
/// An op is a host function (cudaLaunchHostFunc) that hands the task to a thread of this rank's and waits for it. That
/// thread has the kernels, which belong to one thread, and runs where the rank's others do; CUDA's own thread, of which
/// nothing is promised, does nothing but wait. A stream that waited for a word in memory instead (cuStreamWaitValue)
/// would leave CUDA's thread free, but not be known to CUDA as ordered after the host: streams that share a hardware
/// queue could then wait for each other for ever. The price: CUDA calls host functions of a process one after another,
/// as far as it says, so ranks that are threads of one process update in turn; ranks that are processes do not.
///
/// A task calls nothing of CUDA: a host function may not, and who waits for one may not either.
class HostLane {
 public:
  /// `stream` outlives it, or is idle. `kernels` is called with `threads` on the lane's thread.
  HostLane(cudaStream_t stream, int rank, MakeHostKernels kernels, int threads);
  /// As drop(); host functions that the stream has not come to may be called later and do nothing.
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  /// Puts `task` at the end of the stream; it writes `stamp` (null: nobody wants to know) itself. `name` must outlive
  /// the run.
  void enqueue(const char* name, Device::Task task, Stamp* stamp);
  /// Throws what the first task threw that failed, with rank, lane and op; no task begins after it. Thread-safe.
  void throw_if_failed() const;
  /// No task enqueued so far begins any more, and none runs when this returns.
  void drop();
  Facts facts() const;

 private:
  struct State;
  struct Call;
  static void perform(void* call);
  static void work(State& state, const MakeHostKernels& kernels, int threads);

  cudaStream_t stream_;
  const int threads_;
  std::shared_ptr<State> state_;
  std::int64_t enqueued_ = 0;
  std::thread worker_;
};

}  // namespace fsdpbench::backend::cuda
