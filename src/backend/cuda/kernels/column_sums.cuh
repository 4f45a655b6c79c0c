#pragma once

// Sums over the rows of a matrix, one a column, in an order that depends on its shape alone. First the rows are cut
// into parts, whose sums go to scratch (f32 [parts, width]); then the parts are added up.

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/grid.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/scratch.h"
#include "backend/cuda/kernels/warp.cuh"

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
