#pragma once

#include <cstdint>

#include "backend/cuda/kernels/launch.cuh"

namespace fsdpbench::backend::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline float shuffle_xor(float value, int mask) { return __shfl_xor_sync(kAllLanes, value, mask); }
__device__ inline std::uint32_t shuffle_xor(std::uint32_t value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
__device__ inline double shuffle_xor(double value, int mask) { return __shfl_xor_sync(kAllLanes, value, mask); }

/// All lanes get the same bits if combine(a, b) equals combine(b, a). Called by whole warps; a Value that is a struct
/// brings its own shuffle_xor.
template <class Value, class Combine>
__device__ Value warp_reduce(Value value, Combine combine) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

}  // namespace fsdpbench::backend::cuda
