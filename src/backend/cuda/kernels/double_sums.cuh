#pragma once

// A sum in double over an array, in an order that depends on its length alone: sums of parts, then their sum.

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/block.cuh"
#include "backend/cuda/kernels/grid.h"

namespace fsdpbench::backend::cuda {

inline constexpr int kSumThreads = 256;

/// All threads get the sum of parts[0, count).
__device__ inline double sum_of_parts(const double* parts, std::int64_t count) {
  double sum = 0.0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += parts[i];
  return block_sum(sum);
}

/// parts[block] = sum of term.add(i), which does N elements from i on (as many as there are), over the block's packs.
template <int N, class Term>
__global__ void __launch_bounds__(kSumThreads) partial_sums_kernel(Term term, std::int64_t count, double* parts) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kSumThreads;
  double sum = 0.0;
#pragma unroll 4
  for (std::int64_t i = thread * N; i < count; i += threads * N) sum += term.add(i);
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

/// How many parts partial_sums makes; at least 1, also of nothing.
inline std::int64_t sum_parts(std::int64_t count, int pack) {
  constexpr std::int64_t kMost = 1024;  // fill any GPU
  const std::int64_t packs_a_block = std::int64_t{kSumThreads} * pack;
  return std::clamp<std::int64_t>((count + packs_a_block - 1) / packs_a_block, 1, kMost);
}

/// Fills parts[0, sum_parts(count, N)).
template <int N, class Term>
void partial_sums(cudaStream_t stream, const char* name, const Term& term, std::int64_t count, double* parts) {
  launch(stream, name, static_cast<unsigned>(sum_parts(count, N)), kSumThreads, partial_sums_kernel<N, Term>, term,
         count, parts);
}

}  // namespace fsdpbench::backend::cuda
