#pragma once

// Runs of the CUDA backend on this machine's GPUs, through the plugin.

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "backend/cpu/backend.h"
#include "backend/cuda/backend.h"
#include "backend/support.h"

namespace fsdpbench::backend {

/// As the program makes it.
inline std::unique_ptr<Backend> make_gpu_backend() { return cuda::make_cuda_backend(cpu::make_host_kernels); }

/// For why_skip.
inline std::string why_skip_gpu(int ranks) {
  try {
    (void)cuda::make_cuda_backend();
  } catch (const ConfigError& e) {
    return e.what();
  }
  int gpus = 0;
  cudaGetDeviceCount(&gpus);
  if (gpus >= ranks) return {};
  return std::to_string(ranks) + " ranks as threads need so many GPUs, and there are " + std::to_string(gpus);
}

}  // namespace fsdpbench::backend
