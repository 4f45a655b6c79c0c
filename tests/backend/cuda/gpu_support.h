#pragma once

// Runs of the CUDA backend on this machine's GPUs, through the plugin.

#include <cuda_runtime_api.h>

#include <string>

#include "backend/cuda/backend.h"
#include "backend/support.h"

namespace fsdpbench::backend {

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
