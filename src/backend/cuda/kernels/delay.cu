#include "backend/cuda/kernels/launchers.h"

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/launch.cuh"

namespace fsdpbench::backend::cuda {
namespace {

__global__ void delay_kernel(std::int64_t nanoseconds) {
  constexpr std::int64_t kLongestNap = 500'000;  // the hardware sleeps up to twice as long, and at most 1 ms
  const std::int64_t end = global_timer_ns() + nanoseconds;
  for (std::int64_t left = nanoseconds; left > 0; left = end - global_timer_ns()) {
    __nanosleep(static_cast<unsigned>(std::min(left / 2, kLongestNap)));
  }
}

}  // namespace

void delay(cudaStream_t stream, std::int64_t nanoseconds) {
  if (nanoseconds > 0) launch(stream, "delay", 1, 1, delay_kernel, nanoseconds);
}

}  // namespace fsdpbench::backend::cuda
