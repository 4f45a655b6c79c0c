#pragma once

// Stands in for the header of this name where the host's compiler takes the .cu files: CUDA's words as far as the
// kernels use them, and a launch that runs the grid on the fake stream's thread.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "backend/cuda/check.h"
#include "backend/cuda/fake/cudart/faults.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/fake/kernels/grid_runner.h"
#include "backend/cuda/fake/kernels/warp_exchange.h"
#include "base/clock.h"

#undef __shared__
#define __shared__ static thread_local  // blocks run one after another on one thread
#define __launch_bounds__(...)

using fake::blockDim;
using fake::blockIdx;
using fake::gridDim;
using fake::threadIdx;

inline void __syncthreads() { fake::sync_block(); }
inline void __syncwarp() { fake::sync_warp(); }
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return fake::of_lane(lanes, value, fake::lane() ^ mask);
}
template <class T>
T __shfl_sync(unsigned lanes, T value, int lane) {
  return fake::of_lane(lanes, value, lane);
}
inline unsigned __ballot_sync(unsigned lanes, bool vote) { return fake::ballot(lanes, vote); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __fdividef(float a, float b) { return a / b; }
void __nanosleep(unsigned nanoseconds);

namespace fsdpbench::backend::cuda {

inline std::int64_t global_timer_ns() { return now_ns(); }

/// Pointers that a kernel gets by themselves, not inside a struct, are of memory that its GPU reaches.
template <class Argument>
void check_argument(const char* name, int device, const Argument& argument) {
  if constexpr (std::is_pointer_v<Argument>) {
    if (argument != nullptr && !fake::reaches(device, argument)) fake::refuse_pointer(name);
  }
}

template <class... Parameters>
void launch(cudaStream_t stream, const char* name, dim3 grid, dim3 block, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  check(fake::fault_on("cudaLaunchKernelExC", fake::device_of(stream)), name);
  fake::check_launch(name, grid, block, (sizeof(Parameters) + ... + 0));
  (check_argument(name, fake::device_of(stream), arguments), ...);
  fake::run_on_stream(stream, [=] { fake::run_grid(name, grid, block, [=] { kernel(arguments...); }); },
                      {.kind = fake::WorkKind::kernel, .name = name});
}

}  // namespace fsdpbench::backend::cuda
