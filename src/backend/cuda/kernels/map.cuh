#pragma once

// The shape of all elementwise kernels. A body is a struct of pointers and scalars with
//   template <int N> __device__ void run(std::int64_t i) const;
// which does elements [i, i + N), loading all it needs before it stores.

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"

namespace fsdpbench::backend::cuda {

/// Elements before the first that lies on a 16-byte boundary in all arrays; -1 if there is none within a pack.
template <class... T>
std::int64_t elements_before_packs(int pack, const T*... arrays) {
  for (int head = 0; head < pack; ++head) {
    if ((aligned(arrays + head) && ...)) return head;
  }
  return -1;
}

/// Elements [head, …) in packs of N, those before and the few behind one by one.
template <int N, class Body>
__global__ void map_kernel(Body body, std::int64_t head, std::int64_t count) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = (count - head) / N;
  for (std::int64_t p = thread; p < packs; p += threads) body.template run<N>(head + p * N);
  const std::int64_t singles = count - packs * N;
  for (std::int64_t i = thread; i < singles; i += threads) body.template run<1>(i < head ? i : i + packs * N);
}

/// Runs `body` over `count` elements of `arrays`, which are all it touches, in packs of N where they allow it.
template <int N, class Body, class... T>
void map(cudaStream_t stream, const char* name, const Body& body, std::int64_t count, const T*... arrays) {
  constexpr int kThreads = 256;
  const std::int64_t head = elements_before_packs(N, arrays...);
  if (head < 0 || count < head + N) {
    launch(stream, name, blocks_for((count + kThreads - 1) / kThreads), kThreads, map_kernel<1, Body>, body, 0, count);
    return;
  }
  const std::int64_t packs = (count - head) / N;
  launch(stream, name, blocks_for((packs + kThreads - 1) / kThreads), kThreads, map_kernel<N, Body>, body, head, count);
}

}  // namespace fsdpbench::backend::cuda
