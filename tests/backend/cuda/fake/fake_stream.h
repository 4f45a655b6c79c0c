#pragma once

// Calls that the fakes of CUDA's libraries and the tests may make of the fake CUDA runtime (cudart/), beside CUDA's own
// functions. A GPU is imagined: its streams are threads of this process, its memory is the host's.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace fake {

/// Kind of work on a stream, for the fake profiler.
enum class WorkKind { other, kernel, copy, fill };
struct WorkLabel {
  WorkKind kind = WorkKind::kernel;
  const char* name = "";  ///< of the kernel; must stay valid
  std::int64_t bytes = 0;
};

/// Puts `work` at the end of `stream` (null: the default stream of the calling thread's GPU), where it runs on the
/// stream's own thread after everything put there before. It may block; it must not throw. Kernels, copies and
/// collectives of all fakes come through here. Returns the launch's number, counted from 1 across all streams.
std::uint64_t run_on_stream(cudaStream_t stream, std::function<void()> work, const WorkLabel& label = {});

/// One piece of work that has run; times are base/clock.h nanoseconds.
struct FinishedWork {
  std::uint64_t number = 0;
  WorkLabel label;
  int device = 0;
  std::uint64_t stream = 0;         ///< as cudaStreamGetId says
  std::int64_t launched_ns = 0;     ///< when the host put it there
  std::uint32_t launch_thread = 0;  ///< the system's number of that thread
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};
/// Called for every kernel, copy and fill launched from now on when it has run, on its stream's thread. Empty: nobody.
void observe(std::function<void(const FinishedWork&)> observer);

/// The GPU that `stream` belongs to; for null the calling thread's.
int device_of(cudaStream_t stream);

/// The nth call from now on (1: the next) of the CUDA function `name` ("cudaMallocAsync"), by any thread, does
/// nothing and returns `error`, once.
void fail_call(const char* name, cudaError_t error, int nth = 1);
/// From now on the GPU is broken, as after an illegal address: calls that can tell return `error`.
void break_device(int device, cudaError_t error);

/// Bytes of device memory allocated and not freed, on `device`.
std::int64_t live_bytes(int device);
/// Whether a kernel on `device` may use the device memory at `address`: that of a pool is its GPU's and those's that
/// the pool was shared with, all other memory is everybody's.
bool may_use(int device, const void* address);
/// Whether a kernel on `device` may use the memory at `address`: as may_use(), or page-locked memory of the host.
bool reaches(int device, const void* address);
/// Copies so far that had pageable memory of the host on one side: CUDA stages those, and makes the host wait.
std::int64_t pageable_copies();
/// Bytes of the host that are page-locked now.
std::int64_t pinned_bytes();
/// The calling thread is in a host function, where CUDA permits no call of its own.
bool in_host_function();

/// Whether anything has made CUDA's context, which libraries of the driver's (CUPTI) see the making of.
bool has_context();

/// Forgets injected failures, broken devices, the observer and the context. Nothing may run.
void reset();

}  // namespace fake
