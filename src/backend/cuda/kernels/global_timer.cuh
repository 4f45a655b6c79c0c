#pragma once

#include <cstdint>

namespace fsdpbench::backend::cuda {

/// Nanoseconds of the GPU's own clock.
__device__ inline std::int64_t global_timer_ns() {
  std::int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace fsdpbench::backend::cuda
