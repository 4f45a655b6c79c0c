// Bytes to move: forward the rows twice; backward d_y once, the rows of the table that occur once (twice when adding),
// and the whole table once more when it is zeroed.

#include "backend/cuda/kernels/embedding.h"

#include <limits>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/grid.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/warp.cuh"

namespace fsdpbench::backend::cuda {
namespace {

__device__ bool is_in(std::int32_t token, std::int64_t vocab) { return token >= 0 && token < vocab; }

/// A block takes a row at a time.
template <class T>
__global__ void forward_kernel(const T* table, const std::int32_t* tokens, T* y, std::int64_t count, std::int64_t vocab,
                               std::int64_t width, bool table_aligned, bool y_aligned) {
  constexpr int N = kPack<T>;
  for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    const std::int32_t token = tokens[row];
    const bool known = is_in(token, vocab);
    for (std::int64_t j = std::int64_t{threadIdx.x} * N; j < width; j += std::int64_t{blockDim.x} * N) {
      Floats<N> v;
      if (known) {
        v = load_part<N>(table + token * width, j, width, table_aligned);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = std::numeric_limits<float>::quiet_NaN();
      }
      store_part(y + row * width, j, width, y_aligned, v);
    }
  }
}

constexpr int kLinkThreads = 256;
constexpr int kLooksAtOnce = 4;

/// Chains the positions of each token: next[p] is the next position with p's token, or `count`; later[p] (zero before)
/// becomes 1 if p is not the first. A warp takes a position at a time and looks ahead 128 tokens at once.
__global__ void link_kernel(const std::int32_t* tokens, std::int64_t count, std::int64_t* next, std::uint8_t* later) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kLinkThreads / kWarp);
  std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * (kLinkThreads / kWarp) + threadIdx.x / kWarp;
  for (; p < count; p += warps) {
    const std::int32_t token = tokens[p];
    std::int64_t found = count;
    for (std::int64_t base = p + 1; base < count && found == count; base += kWarp * kLooksAtOnce) {
      bool same[kLooksAtOnce];
#pragma unroll
      for (int k = 0; k < kLooksAtOnce; ++k) {
        const std::int64_t at = base + k * kWarp + lane;
        same[k] = at < count && tokens[at] == token;
      }
#pragma unroll
      for (int k = 0; k < kLooksAtOnce; ++k) {
        const unsigned lanes = __ballot_sync(kAllLanes, same[k]);
        if (found == count && lanes != 0) found = base + k * kWarp + __ffs(static_cast<int>(lanes)) - 1;
      }
    }
    if (lane == 0) {
      next[p] = found;
      if (found < count) later[found] = 1;
    }
  }
}

constexpr int kSumThreads = 128;
constexpr int kRowsAtOnce = 4;

/// Block (p, panel) sums the rows of all positions of p's token, in order, if p is the first of them: a pack of columns
/// a thread. Several rows are loaded before they are added, because a common token's chain is long.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(const T* d_y, const std::int32_t* tokens, const std::int64_t* next, const std::uint8_t* later,
               T* d_table, std::int64_t count, std::int64_t vocab, std::int64_t width, bool overwrite, bool d_y_aligned,
               bool table_aligned) {
  constexpr int N = kPack<T>;
  const std::int64_t panel = std::int64_t{gridDim.y} * kSumThreads * N;
  for (std::int64_t first = blockIdx.x; first < count; first += gridDim.x) {
    if (later[first] != 0 || !is_in(tokens[first], vocab)) continue;
    for (std::int64_t j = (std::int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * N; j < width; j += panel) {
      Floats<N> sum{};
      for (std::int64_t p = first; p < count;) {
        std::int64_t at[kRowsAtOnce];
#pragma unroll
        for (int k = 0; k < kRowsAtOnce; ++k) {
          at[k] = p;
          if (p < count) p = next[p];
        }
        Floats<N> row[kRowsAtOnce]{};
#pragma unroll
        for (int k = 0; k < kRowsAtOnce; ++k) {
          if (at[k] < count) row[k] = load_part<N>(d_y + at[k] * width, j, width, d_y_aligned);
        }
#pragma unroll
        for (int k = 0; k < kRowsAtOnce; ++k) {
          if (at[k] >= count) break;
#pragma unroll
          for (int i = 0; i < N; ++i) sum[i] += row[k][i];
        }
      }
      T* const target = d_table + tokens[first] * width;
      const Floats<N> before = overwrite ? Floats<N>{} : load_part<N>(target, j, width, table_aligned);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = before[i] + sum[i];
      store_part(target, j, width, table_aligned, sum);
    }
  }
}

}  // namespace

void embedding(cudaStream_t stream, const std::byte* table, const std::int32_t* tokens, std::byte* y,
               std::int64_t count, std::int64_t vocab, std::int64_t width, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const source = elements<T>(table);
    T* const target = elements<T>(y);
    launch(stream, "embedding", blocks_for(count), row_threads(width, kPack<T>, 256), forward_kernel<T>, source, tokens,
           target, count, vocab, width, rows_aligned(source, width), rows_aligned(target, width));
  });
}

void embedding_backward(cudaStream_t stream, const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table,
                        std::int64_t count, std::int64_t vocab, std::int64_t width, bool overwrite, DType dtype,
                        Scratch& scratch) {
  if (overwrite) {
    check(cudaMemsetAsync(d_table, 0, static_cast<std::size_t>(vocab * width * size_of(dtype)), stream),
          "embedding_backward");
  }
  if (count == 0 || width == 0) return;
  auto* const next = reinterpret_cast<std::int64_t*>(scratch.get(count * 9));
  auto* const later = reinterpret_cast<std::uint8_t*>(next + count);
  check(cudaMemsetAsync(later, 0, static_cast<std::size_t>(count), stream), "embedding_backward");
  constexpr std::int64_t kWarps = kLinkThreads / kWarp;
  launch(stream, "embedding_backward_links", blocks_for((count + kWarps - 1) / kWarps), kLinkThreads, link_kernel,
         tokens, count, next, later);
  with_element_type(dtype, [&]<class T>(T) {
    constexpr std::int64_t kPanel = kSumThreads * kPack<T>;
    const T* const source = elements<T>(d_y);
    T* const target = elements<T>(d_table);
    const auto panels = static_cast<unsigned>(std::min((width + kPanel - 1) / kPanel, kMostOthers));
    launch(stream, "embedding_backward", dim3(blocks_for(count), panels), kSumThreads, sum_kernel<T>, source, tokens,
           next, later, target, count, vocab, width, overwrite, rows_aligned(source, width),
           rows_aligned(target, width));
  });
}

}  // namespace fsdpbench::backend::cuda
