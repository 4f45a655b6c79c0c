#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/scratch.h"

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

// A sum in double over an array, in an order that depends on its length alone: sums of parts, then their sum.

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

/// Number of parts that partial_sums makes; at least 1, also of nothing.
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

// Sums over the rows of a matrix, one a column, in an order that depends on its shape alone. First the rows are cut
// into parts, whose sums go to scratch (f32 [parts, width]); then the parts are added up.

namespace fsdpbench::backend::cuda {

/// One block a 32 columns, warp w takes parts w, w + 32, …; then the warps' sums in order.
template <class T>
__global__ void finish_column_sums_kernel(const float* partial, std::int64_t parts, T* target, std::int64_t width) {
  __shared__ float of_warp[kWarp][kWarp];
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0.0F;
  if (column < width) {
#pragma unroll 4
    for (std::int64_t part = threadIdx.y; part < parts; part += kWarp) sum += partial[part * width + column];
  }
  of_warp[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  float total = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kWarp; ++warp) total += of_warp[warp][threadIdx.x];
  set(target[column], total);
}

/// target[column] = sum over parts of partial[part, column].
template <class T>
void finish_column_sums(cudaStream_t stream, const char* name, const float* partial, std::int64_t parts, T* target,
                        std::int64_t width) {
  launch(stream, name, blocks_for((width + kWarp - 1) / kWarp), dim3(kWarp, kWarp), finish_column_sums_kernel<T>,
         partial, parts, target, width);
}

inline constexpr int kRowsAtOnce = 8;  // warps of a block: each takes every eighth row of the block's part

/// Block (x, y) sums 32 packs of columns over the rows of parts y, y + gridDim.y, …
template <int N, class Source>
__global__ void partial_column_sums_kernel(Source source, float* partial, std::int64_t rows, std::int64_t width,
                                           std::int64_t parts, std::int64_t rows_a_part) {
  __shared__ float of_warp[kRowsAtOnce][kWarp * N];
  const std::int64_t first = std::int64_t{blockIdx.x} * kWarp * N;
  const std::int64_t column = first + threadIdx.x * N;
  for (std::int64_t part = blockIdx.y; part < parts; part += gridDim.y) {
    const std::int64_t end = std::min((part + 1) * rows_a_part, rows);
    Floats<N> sum{};
    if (column < width) {
#pragma unroll 4
      for (std::int64_t row = part * rows_a_part + threadIdx.y; row < end; row += kRowsAtOnce) {
        const Floats<N> values = source.load_columns(row, column);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += values[i];
      }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) of_warp[threadIdx.y][threadIdx.x * N + i] = sum[i];
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y) * kWarp + static_cast<int>(threadIdx.x); i < kWarp * N;
         i += kRowsAtOnce * kWarp) {
      float total = 0.0F;
#pragma unroll
      for (int warp = 0; warp < kRowsAtOnce; ++warp) total += of_warp[warp][i];
      if (first + i < width) partial[part * width + first + i] = total;
    }
    __syncthreads();
  }
}

/// target[column] = sum over rows of the matrix that `source` reads: load_columns(row, column) gives N neighbours.
template <int N, class Source, class T>
void column_sums(cudaStream_t stream, const char* name, const Source& source, T* target, std::int64_t rows,
                 std::int64_t width, Scratch& scratch) {
  constexpr std::int64_t kFewestRows = 32;  // of a part, so that partial sums are few bytes beside the matrix
  constexpr std::int64_t kBlocks = 1024;    // fill any GPU
  if (width == 0) return;
  const std::int64_t panels = (width + kWarp * N - 1) / (kWarp * N);
  const std::int64_t wanted =
      std::clamp<std::int64_t>(rows / kFewestRows, 1, std::max<std::int64_t>(1, kBlocks / panels));
  const std::int64_t rows_a_part = (rows + wanted - 1) / wanted;
  const std::int64_t parts = std::max<std::int64_t>(1, rows_a_part == 0 ? 0 : (rows + rows_a_part - 1) / rows_a_part);
  auto* const partial = reinterpret_cast<float*>(scratch.get(parts * width * 4));
  launch(stream, name, dim3(blocks_for(panels), static_cast<unsigned>(std::min(parts, kMostOthers))),
         dim3(kWarp, kRowsAtOnce), partial_column_sums_kernel<N, Source>, source, partial, rows, width, parts,
         rows_a_part);
  finish_column_sums(stream, name, partial, parts, target, width);
}

}  // namespace fsdpbench::backend::cuda
