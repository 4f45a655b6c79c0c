// Bytes to move: forward the rows twice; backward d_y once, the rows of the table that occur once (twice when adding),
// and the whole table once more when it is zeroed. The order of the tokens and the sums of chunks are small beside it.

#include "backend/cuda/kernels/launchers.h"

#include <limits>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"
#include "base/bytes.h"

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

/// Positions in the order of their tokens; those whose token is none come last.
struct Order {
  const std::int32_t* tokens;
  const std::int32_t* order;
  std::int64_t count;

  __device__ std::int32_t token(std::int64_t i) const { return tokens[order[i]]; }
  __device__ bool is(std::int64_t i, std::int32_t of) const { return i < count && token(i) == of; }
  /// The first of the positions of token(i), which is no later than `last`.
  __device__ std::int64_t begin(std::int64_t i, std::int64_t last) const {
    const std::int32_t of = token(i);
    for (std::int64_t low = 0; low < last;) {
      const std::int64_t middle = (low + last) / 2;
      if (token(middle) == of) {
        last = middle;
      } else {
        low = middle + 1;
      }
    }
    return last;
  }
};

/// A token's rows are summed kEmbeddingChunk at a time, side by side, and then the sums: a sixth of a text is one
/// token, which one block would walk through alone. Of tokens with several chunks these are the sums, in fp32.
struct Chunks {
  float* sums;  // [slots, width]

  /// In a window of kEmbeddingChunk places at most one such token goes on and one begins.
  __device__ std::int64_t slot(std::int64_t i, bool first) const { return 2 * (i / kEmbeddingChunk) + (first ? 1 : 0); }
  static std::int64_t slots(std::int64_t count) { return 2 * ceil_div(count, kEmbeddingChunk); }
};

/// sum += row(0) + row(1) + …, in order, as long as has(i). Several are loaded before they are added.
template <int N, class Has, class Row>
__device__ void add_rows(Floats<N>& sum, const Has& has, const Row& row) {
  bool more = true;
  for (int i = 0; more; i += kRowsAtOnce) {
    Floats<N> rows[kRowsAtOnce]{};
    bool is_one[kRowsAtOnce];
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      is_one[k] = has(i + k);
      if (is_one[k]) rows[k] = row(i + k);
    }
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      if (!is_one[k]) break;
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += rows[k][n];
    }
    more = is_one[kRowsAtOnce - 1];
  }
}

/// Rows of the gradient's table, of which a thread takes a pack of columns. A model's width has far fewer panels than a
/// grid may have.
template <class G>
struct Table {
  G* memory;
  VocabularyPart part;
  std::int64_t width;
  bool overwrite;
  bool aligned;

  template <int N>
  __device__ void add(std::int32_t token, std::int64_t column, Floats<N> sum) const {
    G* const target = memory + (token - part.first) * width;
    const Floats<N> before = overwrite ? Floats<N>{} : load_part<N>(target, column, width, aligned);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = before[i] + sum[i];
    store_part(target, column, width, aligned, sum);
  }
};

/// Block (i, panel) sums the chunk that begins at order[i], if one does.
template <class T, class G>
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const T* d_y, const Order at, const Chunks chunks,
                                                          const Table<G> table, bool d_y_aligned, bool sums_aligned) {
  constexpr int N = kPack<T>;
  const std::int64_t width = table.width;
  const std::int64_t j = (std::int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * N;
  if (j >= width) return;
  for (std::int64_t first = blockIdx.x; first < at.count; first += gridDim.x) {
    const std::int32_t token = at.token(first);
    if (!table.part.holds(token)) continue;
    const bool begins = first == 0 || at.token(first - 1) != token;
    if (!begins) {
      const std::int64_t chunk_before = first - kEmbeddingChunk;
      if (chunk_before < 0 || at.token(chunk_before) != token) continue;
      if ((first - at.begin(first, chunk_before)) % kEmbeddingChunk != 0) continue;
    }
    const bool whole = begins && !at.is(first + kEmbeddingChunk, token);
    float* const sums = whole ? nullptr : chunks.sums + chunks.slot(first, begins) * width;
    const std::int32_t* const order = at.order + first;
    const std::int64_t left = at.count - first;
    const int most = left < kEmbeddingChunk ? static_cast<int>(left) : static_cast<int>(kEmbeddingChunk);
    Floats<N> sum{};
    add_rows(
        sum, [&](int i) { return i < most && at.tokens[order[i]] == token; },
        [&](int i) { return load_part<N>(d_y + order[i] * width, j, width, d_y_aligned); });
    if (sums == nullptr) {
      table.add(token, j, sum);
    } else {
      store_part(sums, j, width, sums_aligned, sum);
    }
  }
}

/// Block (i, panel) adds up the chunks of a token that begins at order[i] and has several.
template <int N, class G>
__global__ void __launch_bounds__(kSumThreads)
    join_kernel(const Order at, const Chunks chunks, const Table<G> table, bool sums_aligned) {
  const std::int64_t width = table.width;
  const std::int64_t j = (std::int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * N;
  if (j >= width) return;
  for (std::int64_t first = blockIdx.x; first < at.count; first += gridDim.x) {
    const std::int32_t token = at.token(first);
    if (!table.part.holds(token) || (first > 0 && at.token(first - 1) == token)) continue;
    if (!at.is(first + kEmbeddingChunk, token)) continue;
    Floats<N> sum{};
    add_rows(
        sum, [&](int c) { return at.is(first + c * kEmbeddingChunk, token); },
        [&](int c) {
          const std::int64_t slot = chunks.slot(first + c * kEmbeddingChunk, c == 0);
          return load_part<N>(chunks.sums + slot * width, j, width, sums_aligned);
        });
    table.add(token, j, sum);
  }
}

}  // namespace

void embedding(cudaStream_t stream, const EmbeddingCall& call) {
  const RowShape& shape = call.shape;
  with_element_type(shape.dtype, [&]<class T>(T) {
    const T* const table = elements<T>(call.table);
    T* const y = elements<T>(call.y);
    launch(stream, "embedding", blocks_for(shape.rows), row_threads(shape.width, kPack<T>, 256), forward_kernel<T>,
           table, call.tokens, y, shape.rows, call.part, shape.width, rows_aligned(table, shape.width),
           rows_aligned(y, shape.width));
  });
}

void embedding_backward(cudaStream_t stream, const EmbeddingBackwardCall& call, Scratch& scratch) {
  const std::int64_t count = call.shape.rows, width = call.shape.width;
  const VocabularyPart& part = call.part;
  if (call.overwrite) {
    const auto bytes = static_cast<std::size_t>(part.count * width * size_of(call.d_table.dtype));
    check(cudaMemsetAsync(call.d_table.memory, 0, bytes, stream), "embedding_backward");
  }
  if (count == 0 || width == 0) return;
  const std::int64_t of_order = round_up(token_order_bytes(count), 256);
  std::byte* const memory = scratch.get(of_order + Chunks::slots(count) * width * 4);
  const Order order{call.tokens, order_tokens(stream, call.tokens, count, part.whole, memory), count};
  const Chunks chunks{reinterpret_cast<float*>(memory + of_order)};
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    constexpr std::int64_t kPanel = kSumThreads * kPack<T>;
    const T* const source = elements<T>(call.d_y);
    const dim3 blocks(blocks_for(count), static_cast<unsigned>(ceil_div(width, kPanel)));
    const bool sums_aligned = rows_aligned(chunks.sums, width);
    with_gradient_type<T>(call.d_table.dtype, [&]<class G>(G) {
      G* const target = elements<G>(call.d_table.memory);
      const Table<G> table{target, part, width, call.overwrite, rows_aligned(target, width)};
      launch(stream, "embedding_backward", blocks, kSumThreads, sum_kernel<T, G>, source, order, chunks, table,
             rows_aligned(source, width), sums_aligned);
      if (count <= kEmbeddingChunk) return;
      launch(stream, "embedding_backward", blocks, kSumThreads, join_kernel<kPack<T>, G>, order, chunks, table,
             sums_aligned);
    });
  });
}

}  // namespace fsdpbench::backend::cuda
