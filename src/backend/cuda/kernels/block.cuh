#pragma once

#include "backend/cuda/kernels/warp.cuh"

namespace fsdpbench::backend::cuda {

struct Sum {
  template <class Value>
  __device__ Value operator()(Value a, Value b) const {
    return a + b;
  }
};

/// Combines one value of each thread of a one-dimensional block, in an order fixed by the block's size; all threads get
/// the result. All must call. What they read of memory before the call, others may overwrite after it.
template <class Value, class Combine>
__device__ Value block_reduce(Value value, Value identity, Combine combine) {
  __shared__ Value of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_reduce(value, combine);
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < static_cast<int>(blockDim.x) / kWarp ? of_warp[lane] : identity, combine);
  __syncthreads();  // of_warp may be written again
  return value;
}

template <class Value>
__device__ Value block_sum(Value value) {
  return block_reduce(value, Value{}, Sum{});
}

}  // namespace fsdpbench::backend::cuda
