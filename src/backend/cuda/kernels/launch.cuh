#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {

/// Nanoseconds of the GPU's own clock.
__device__ inline std::int64_t global_timer_ns() {
  std::int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Puts `kernel` on `stream`: the one place where kernels are launched. A grid without blocks is nothing to do. Throws
/// BackendError that names the kernel as `name`.
template <class... Parameters>
void launch(cudaStream_t stream, const char* name, dim3 grid, dim3 block, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace fsdpbench::backend::cuda
