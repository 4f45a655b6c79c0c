// Bytes to move: forward the rows twice; backward d_y once, the rows of the table that occur once (twice when adding),
// and the whole table once more when it is zeroed. The order of the tokens is small beside it.

#include "backend/cuda/kernels/embedding.h"

#include <limits>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/grid.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/token_order.h"

namespace fsdpbench::backend::cuda {
namespace {

/// A block takes a row at a time.
template <class T>
__global__ void forward_kernel(const T* table, const std::int32_t* tokens, T* y, std::int64_t count,
                               VocabularyPart part, std::int64_t width, bool table_aligned, bool y_aligned) {
  constexpr int N = kPack<T>;
  for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
    const std::int32_t token = tokens[row];
    const bool held = part.holds(token);
    const float otherwise = part.knows(token) ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t j = std::int64_t{threadIdx.x} * N; j < width; j += std::int64_t{blockDim.x} * N) {
      Floats<N> v;
      if (held) {
        v = load_part<N>(table + (token - part.first) * width, j, width, table_aligned);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = otherwise;
      }
      store_part(y + row * width, j, width, y_aligned, v);
    }
  }
}

constexpr int kSumThreads = 128;
constexpr int kRowsAtOnce = 4;

/// Block (i, panel) sums the rows of all positions of a token, in order, if order[i] is the first of them: a pack of
/// columns a thread. Several rows are loaded before they are added, because a common token has many.
template <class T, class G>
__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(const T* d_y, const std::int32_t* tokens, const std::int32_t* order, G* d_table, std::int64_t count,
               VocabularyPart part, std::int64_t width, bool overwrite, bool d_y_aligned, bool table_aligned) {
  constexpr int N = kPack<T>;
  const std::int64_t panel = std::int64_t{gridDim.y} * kSumThreads * N;
  for (std::int64_t first = blockIdx.x; first < count; first += gridDim.x) {
    const std::int32_t token = tokens[order[first]];
    if (!part.holds(token) || (first > 0 && tokens[order[first - 1]] == token)) continue;
    for (std::int64_t j = (std::int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * N; j < width; j += panel) {
      Floats<N> sum{};
      bool more = true;
      for (std::int64_t i = first; more; i += kRowsAtOnce) {
        Floats<N> row[kRowsAtOnce]{};
        bool is_one[kRowsAtOnce];
#pragma unroll
        for (int k = 0; k < kRowsAtOnce; ++k) {
          const std::int64_t at = i + k < count ? order[i + k] : 0;
          is_one[k] = i + k < count && tokens[at] == token;
          if (is_one[k]) row[k] = load_part<N>(d_y + at * width, j, width, d_y_aligned);
        }
#pragma unroll
        for (int k = 0; k < kRowsAtOnce; ++k) {
          if (!is_one[k]) break;
#pragma unroll
          for (int n = 0; n < N; ++n) sum[n] += row[k][n];
        }
        more = is_one[kRowsAtOnce - 1];
      }
      G* const target = d_table + (token - part.first) * width;
      const Floats<N> before = overwrite ? Floats<N>{} : load_part<N>(target, j, width, table_aligned);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = before[i] + sum[i];
      store_part(target, j, width, table_aligned, sum);
    }
  }
}

}  // namespace

void embedding(cudaStream_t stream, const std::byte* table, const std::int32_t* tokens, std::byte* y,
               std::int64_t count, const VocabularyPart& part, std::int64_t width, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const source = elements<T>(table);
    T* const target = elements<T>(y);
    launch(stream, "embedding", blocks_for(count), row_threads(width, kPack<T>, 256), forward_kernel<T>, source, tokens,
           target, count, part, width, rows_aligned(source, width), rows_aligned(target, width));
  });
}

void embedding_backward(cudaStream_t stream, const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table,
                        std::int64_t count, const VocabularyPart& part, std::int64_t width, bool overwrite, DType dtype,
                        DType gradient_dtype, Scratch& scratch) {
  if (overwrite) {
    check(cudaMemsetAsync(d_table, 0, static_cast<std::size_t>(part.count * width * size_of(gradient_dtype)), stream),
          "embedding_backward");
  }
  if (count == 0 || width == 0) return;
  const std::int32_t* const order =
      order_tokens(stream, tokens, count, part.whole, scratch.get(token_order_bytes(count)));
  with_element_type(dtype, [&]<class T>(T) {
    constexpr std::int64_t kPanel = kSumThreads * kPack<T>;
    const T* const source = elements<T>(d_y);
    const auto panels = static_cast<unsigned>(std::min((width + kPanel - 1) / kPanel, kMostOthers));
    with_gradient_type<T>(gradient_dtype, [&]<class G>(G) {
      G* const target = elements<G>(d_table);
      launch(stream, "embedding_backward", dim3(blocks_for(count), panels), kSumThreads, sum_kernel<T, G>, source,
             tokens, order, target, count, part, width, overwrite, rows_aligned(source, width),
             rows_aligned(target, width));
    });
  });
}

}  // namespace fsdpbench::backend::cuda
