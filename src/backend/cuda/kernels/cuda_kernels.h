#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// The numeric kernels on one stream of the current device: every call only enqueues. Owns the libraries' handles and
/// workspaces of that stream (cuBLASLt, cuDNN), which are made at first use. `workspace_bytes()` says how much device
/// memory that is.
class StreamKernels : public Kernels {
 public:
  virtual std::int64_t workspace_bytes() const = 0;
};
std::unique_ptr<StreamKernels> make_cuda_kernels(cudaStream_t stream);

}  // namespace fsdpbench::backend::cuda
