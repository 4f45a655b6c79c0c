// Bytes to move: 3 tensors forward, 5 backward, 6 if it gives the product again.

#include "backend/cuda/kernels/launchers.h"

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/map.cuh"

namespace fsdpbench::backend::cuda {
namespace {

/// Right for any x: e^-x becomes infinite or 0 where the sigmoid is 0 or 1.
__device__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

template <class T>
struct Forward {
  const T* gate;
  const T* up;
  T* y;

  template <int N>
  __device__ void run(std::int64_t i) const {
    const Floats<N> g = load<N>(gate + i);
    const Floats<N> u = load<N>(up + i);
    Floats<N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result[k] = g[k] * sigmoid(g[k]) * u[k];
    store(y + i, result);
  }
};

template <class T>
struct Backward {
  const T* d_y;
  const T* gate;
  const T* up;
  T* d_gate;
  T* d_up;
  T* y;  // null: nobody wants it

  template <int N>
  __device__ void run(std::int64_t i) const {
    const Floats<N> d = load<N>(d_y + i);
    const Floats<N> g = load<N>(gate + i);
    const Floats<N> u = load<N>(up + i);
    Floats<N> of_gate, of_up, product;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float s = sigmoid(g[k]);
      of_up[k] = d[k] * g[k] * s;
      of_gate[k] = d[k] * u[k] * s * (1.0F + g[k] * (1.0F - s));
      product[k] = g[k] * s * u[k];
    }
    if (y != nullptr) store(y + i, product);
    store(d_up + i, of_up);
    store(d_gate + i, of_gate);
  }
};

}  // namespace

void swiglu(cudaStream_t stream, const SwigluCall& call) {
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    const Forward<T> on{elements<T>(call.gate), elements<T>(call.up), elements<T>(call.y)};
    map<kPack<T>>(stream, "swiglu", on, call.shape.rows * call.shape.width, on.gate, on.up, on.y);
  });
}

void swiglu_backward(cudaStream_t stream, const SwigluBackwardCall& call) {
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    const Backward<T> on{elements<T>(call.d_y),    elements<T>(call.gate), elements<T>(call.up),
                         elements<T>(call.d_gate), elements<T>(call.d_up), elements<T>(call.y)};
    const T* const also = call.y != nullptr ? on.y : on.d_y;  // as long as they are
    map<kPack<T>>(stream, "swiglu_backward", on, call.shape.rows * call.shape.width, on.d_y, on.gate, on.up, on.d_gate,
                  on.d_up, also);
  });
}

}  // namespace fsdpbench::backend::cuda
