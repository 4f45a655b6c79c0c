#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/kernels/transfers.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// The numeric kernels on one stream of the current device: every call only enqueues. Owns the libraries' handles and
/// workspaces of that stream (cuBLASLt, cuDNN), which are made at first use. `workspace_bytes()` says how much device
/// memory that is.
class StreamKernels : public Kernels {
 public:
  /// Device memory of the libraries beside the pool, so far.
  virtual std::int64_t workspace_bytes() const = 0;
  /// Writes the host memory of the downloads that have arrived; never waits. The device calls it whenever the stream,
  /// or an event on it, was waited for; nothing else writes there, so a caller who gave up waiting may free his memory.
  virtual void deliver_downloads() = 0;
};
/// `stream` outlives the kernels and is idle when they die. `while_waiting` is called at least every 10 ms where an
/// upload or download of more than 64 MiB makes the host wait for the stream; it may throw. Copies from and to what is
/// `pinned` (null: nothing; outlives the kernels) wait for nobody.
std::unique_ptr<StreamKernels> make_cuda_kernels(cudaStream_t stream, const Arithmetic& arithmetic = {},
                                                 std::function<void()> while_waiting = {},
                                                 const PinnedRanges* pinned = nullptr);

/// In whose order sums are added, for people.
std::string describe(const Arithmetic& arithmetic);

/// Names and versions of the libraries that multiply and attend, as loaded: "cuBLASLt 13.1.0, cuDNN 9.19.0".
std::string math_libraries();

}  // namespace fsdpbench::backend::cuda
