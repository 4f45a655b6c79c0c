// Bytes to move: forward 2 tensors (x is read twice, the second time from the cache), backward 4 (each row is kept in
// registers between its dot product and its gradient), 5 if it gives y again, and at most 512 rows of f32 partial sums,
// written and read.

#include "backend/cuda/kernels/launchers.h"

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/reductions.cuh"

namespace fsdpbench::backend::cuda {
namespace {

constexpr unsigned kMostThreads = 256;

/// A block takes a row at a time.
template <class T>
__global__ void __launch_bounds__(kMostThreads)
    forward_kernel(const T* x, const T* weight, T* y, float* rstd, std::int64_t rows, std::int64_t width, float epsilon,
                   bool x_aligned, bool weight_aligned, bool y_aligned) {
  constexpr int N = kPack<T>;
  const std::int64_t first = std::int64_t{threadIdx.x} * N;
  const std::int64_t step = std::int64_t{blockDim.x} * N;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const source = x + row * width;
    float squares = 0.0F;
#pragma unroll 4
    for (std::int64_t j = first; j < width; j += step) {
      const Floats<N> v = load_part<N>(source, j, width, x_aligned);
#pragma unroll
      for (int k = 0; k < N; ++k) squares += v[k] * v[k];
    }
    squares = block_sum(squares);
    const float r = 1.0F / sqrtf(squares / static_cast<float>(width) + epsilon);
    if (threadIdx.x == 0) rstd[row] = r;
#pragma unroll 4
    for (std::int64_t j = first; j < width; j += step) {
      Floats<N> v = load_part<N>(source, j, width, x_aligned);
      const Floats<N> w = load_part<N>(weight, j, width, weight_aligned);
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = v[k] * r * w[k];
      store_part(y + row * width, j, width, y_aligned, v);
    }
  }
}

/// Tensors that both kernels of the backward read and write: they are [rows, width].
template <class T>
struct Backward {
  const T* d_y;
  const T* x;
  const T* weight;
  const float* rstd;
  T* d_x;
  T* y;            ///< x * rstd * weight; null: nobody needs it
  float* partial;  ///< sums of d_weight, [gridDim.x, width]
  std::int64_t rows, width;
  bool d_y_aligned, x_aligned, weight_aligned, d_x_aligned, y_aligned;

  /// Part of the row's dot(d_y * weight, x).
  __device__ float dot(std::int64_t row, std::int64_t j) const {
    constexpr int N = kPack<T>;
    const Floats<N> d = load_part<N>(d_y + row * width, j, width, d_y_aligned);
    const Floats<N> v = load_part<N>(x + row * width, j, width, x_aligned);
    return dot(d, v, j);
  }
  __device__ float dot(const Floats<kPack<T>>& d, const Floats<kPack<T>>& v, std::int64_t j) const {
    const Floats<kPack<T>> w = load_part<kPack<T>>(weight, j, width, weight_aligned);
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) sum += d[k] * w[k] * v[k];
    return sum;
  }
};

/// Block (part, window) takes rows part, part + gridDim.x, … and the columns of its window: kHeld packs a thread, held
/// in registers. Only rows wider than one window are read more than once.
template <class T, int kHeld>
__global__ void __launch_bounds__(kMostThreads) backward_kernel(const Backward<T> b) {
  constexpr int N = kPack<T>;
  const std::int64_t step = std::int64_t{blockDim.x} * N;
  const std::int64_t begin = std::int64_t{blockIdx.y} * kHeld * step;
  const std::int64_t first = begin + threadIdx.x * N;
  Floats<N> d_weight[kHeld]{};
  for (std::int64_t row = blockIdx.x; row < b.rows; row += gridDim.x) {
    const std::int64_t at = row * b.width;
    Floats<N> d[kHeld], v[kHeld];
    float dot = 0.0F;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const std::int64_t j = first + h * step;  // zeros behind the row's end
      d[h] = load_part<N>(b.d_y + at, j, b.width, b.d_y_aligned);
      v[h] = load_part<N>(b.x + at, j, b.width, b.x_aligned);
      dot += b.dot(d[h], v[h], j);
    }
    for (std::int64_t j = threadIdx.x * N; j < b.width; j += step) {
      if (j < begin || j >= begin + kHeld * step) dot += b.dot(row, j);
    }
    dot = block_sum(dot);
    const float r = b.rstd[row];
    const float along_x = dot * r * r / static_cast<float>(b.width);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const std::int64_t j = first + h * step;
      if (j >= b.width) break;
      const Floats<N> w = load_part<N>(b.weight, j, b.width, b.weight_aligned);
      Floats<N> d_x = load_part<N>(b.d_x + at, j, b.width, b.d_x_aligned);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        d_x[k] = d_x[k] + r * (d[h][k] * w[k] - v[h][k] * along_x);
        d_weight[h][k] += d[h][k] * v[h][k] * r;
      }
      store_part(b.d_x + at, j, b.width, b.d_x_aligned, d_x);
      if (b.y == nullptr) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) v[h][k] = v[h][k] * r * w[k];
      store_part(b.y + at, j, b.width, b.y_aligned, v[h]);
    }
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    store_part(b.partial + blockIdx.x * b.width, first + h * step, b.width, b.width % 4 == 0, d_weight[h]);
  }
}

template <class T, int kHeld>
void run_backward(cudaStream_t stream, const Backward<T>& b, std::int64_t parts, unsigned threads) {
  const std::int64_t window = std::int64_t{threads} * kPack<T> * kHeld;
  launch(stream, "rms_norm_backward",
         dim3(static_cast<unsigned>(parts), static_cast<unsigned>((b.width + window - 1) / window)), threads,
         backward_kernel<T, kHeld>, b);
}

}  // namespace

void rms_norm(cudaStream_t stream, const RmsNormCall& call) {
  const RowShape& shape = call.shape;
  with_element_type(shape.dtype, [&]<class T>(T) {
    const T* const x = elements<T>(call.x);
    const T* const weight = elements<T>(call.weight);
    T* const y = elements<T>(call.y);
    launch(stream, "rms_norm", blocks_for(shape.rows), row_threads(shape.width, kPack<T>, kMostThreads),
           forward_kernel<T>, x, weight, y, call.rstd, shape.rows, shape.width, call.epsilon,
           rows_aligned(x, shape.width), aligned(weight), rows_aligned(y, shape.width));
  });
}

void rms_norm_backward(cudaStream_t stream, const RmsNormBackwardCall& call, Scratch& scratch) {
  constexpr std::int64_t kFewestRows = 8, kMostParts = 512;
  const std::int64_t rows = call.shape.rows, width = call.shape.width;
  if (width == 0) return;
  const std::int64_t parts = std::clamp<std::int64_t>(rows / kFewestRows, 1, kMostParts);
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    Backward<T> b{};
    b.d_y = elements<T>(call.d_y);
    b.x = elements<T>(call.x);
    b.weight = elements<T>(call.weight);
    b.rstd = call.rstd;
    b.d_x = elements<T>(call.d_x);
    b.y = elements<T>(call.y);
    b.partial = reinterpret_cast<float*>(scratch.get(parts * width * 4));
    b.rows = rows;
    b.width = width;
    b.d_y_aligned = rows_aligned(b.d_y, width);
    b.x_aligned = rows_aligned(b.x, width);
    b.weight_aligned = aligned(b.weight);
    b.d_x_aligned = rows_aligned(b.d_x, width);
    b.y_aligned = rows_aligned(b.y, width);
    const unsigned threads = row_threads(width, kPack<T>, kMostThreads);
    const std::int64_t packs = (width + threads * kPack<T> - 1) / (threads * kPack<T>);  // a thread
    if (packs <= 1) {
      run_backward<T, 1>(stream, b, parts, threads);
    } else if (packs <= 2) {
      run_backward<T, 2>(stream, b, parts, threads);
    } else {
      run_backward<T, 4>(stream, b, parts, threads);
    }
    with_gradient_type<T>(call.d_weight.dtype, [&]<class G>(G) {
      finish_column_sums(stream, "rms_norm_backward", b.partial, parts, elements<G>(call.d_weight.memory), width);
    });
  });
}

}  // namespace fsdpbench::backend::cuda
