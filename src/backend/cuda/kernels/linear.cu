// Bytes to move: add_bias 2 tensors, bias_backward 1, relu 2, relu_backward and add 3.

#include "backend/cuda/kernels/launchers.h"

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/map.cuh"
#include "backend/cuda/kernels/reductions.cuh"

namespace fsdpbench::backend::cuda {
namespace {

template <class T>
struct Relu {
  const T* x;
  T* y;

  template <int N>
  __device__ void run(std::int64_t i) const {
    Floats<N> v = load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] < 0.0F ? 0.0F : v[k];  // a NaN stays visible
    store(y + i, v);
  }
};

template <class T>
struct ReluBackward {
  const T* d_y;
  const T* y;
  T* d_x;

  template <int N>
  __device__ void run(std::int64_t i) const {
    Floats<N> d = load<N>(d_y + i);
    const Floats<N> output = load<N>(y + i);
#pragma unroll
    for (int k = 0; k < N; ++k) d[k] = output[k] > 0.0F ? d[k] : 0.0F;
    store(d_x + i, d);
  }
};

template <class T>
struct Add {
  const T* x;
  const T* residual;
  T* y;

  template <int N>
  __device__ void run(std::int64_t i) const {
    Floats<N> v = load<N>(x + i);
    const Floats<N> r = load<N>(residual + i);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] + r[k];
    store(y + i, v);
  }
};

/// A block takes a row at a time.
template <class T>
__global__ void add_bias_kernel(T* y, const T* bias, std::int64_t rows, std::int64_t width, bool y_aligned,
                                bool bias_aligned) {
  constexpr int N = kPack<T>;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const target = y + row * width;
    for (std::int64_t j = std::int64_t{threadIdx.x} * N; j < width; j += std::int64_t{blockDim.x} * N) {
      Floats<N> v = load_part<N>(target, j, width, y_aligned);
      const Floats<N> b = load_part<N>(bias, j, width, bias_aligned);
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = v[k] + b[k];
      store_part(target, j, width, y_aligned, v);
    }
  }
}

template <class T>
struct Gradient {
  const T* d_y;
  std::int64_t width;
  bool vector;

  __device__ Floats<kPack<T>> load_columns(std::int64_t row, std::int64_t column) const {
    return load_part<kPack<T>>(d_y + row * width, column, width, vector);
  }
};

}  // namespace

void add_bias(cudaStream_t stream, const RowShape& shape, std::byte* y, const std::byte* bias) {
  const std::int64_t rows = shape.rows, width = shape.width;
  with_element_type(shape.dtype, [&]<class T>(T) {
    T* const target = elements<T>(y);
    const T* const b = elements<T>(bias);
    launch(stream, "add_bias", blocks_for(rows), row_threads(width, kPack<T>, 256), add_bias_kernel<T>, target, b, rows,
           width, rows_aligned(target, width), aligned(b));
  });
}

void bias_backward(cudaStream_t stream, const RowShape& shape, const std::byte* d_y, const Elements& d_bias,
                   Scratch& scratch) {
  const std::int64_t width = shape.width;
  with_element_type(shape.dtype, [&]<class T>(T) {
    const T* const d = elements<T>(d_y);
    with_gradient_type<T>(d_bias.dtype, [&]<class G>(G) {
      column_sums<kPack<T>>(stream, "bias_backward", Gradient<T>{d, width, rows_aligned(d, width)},
                            elements<G>(d_bias.memory), shape.rows, width, scratch);
    });
  });
}

void relu(cudaStream_t stream, const std::byte* x, std::byte* y, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const Relu<T> body{elements<T>(x), elements<T>(y)};
    map<kPack<T>>(stream, "relu", body, count, body.x, body.y);
  });
}

void relu_backward(cudaStream_t stream, const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                   DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const ReluBackward<T> body{elements<T>(d_y), elements<T>(y), elements<T>(d_x)};
    map<kPack<T>>(stream, "relu_backward", body, count, body.d_y, body.y, body.d_x);
  });
}

void add(cudaStream_t stream, const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count,
         DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const Add<T> body{elements<T>(x), elements<T>(residual), elements<T>(y)};
    map<kPack<T>>(stream, "add", body, count, body.x, body.residual, body.y);
  });
}

}  // namespace fsdpbench::backend::cuda
