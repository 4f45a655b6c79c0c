// Bytes to move: cast the source and the target, accumulate the source and twice the target.

#include "backend/cuda/kernels/launchers.h"

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/map.cuh"

namespace fsdpbench::backend::cuda {
namespace {

template <class From, class To>
struct Cast {
  const From* source;
  To* target;
  float factor;

  template <int N>
  __device__ void run(std::int64_t i) const {
    Floats<N> v = load<N>(source + i);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = factor * v[k];
    store(target + i, v);
  }
};

template <class From>
struct Accumulate {
  const From* source;
  float* target;
  float factor;

  template <int N>
  __device__ void run(std::int64_t i) const {
    const Floats<N> v = load<N>(source + i);
    Floats<N> sum = load<N>(target + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = sum[k] + factor * v[k];
    store(target + i, sum);
  }
};

}  // namespace

void cast(cudaStream_t stream, const ConstElements& source, const Elements& target, std::int64_t count, float factor) {
  if (source.dtype == target.dtype && factor == 1.0F) {
    if (source.memory == target.memory || count == 0) return;
    const auto bytes = static_cast<std::size_t>(count * size_of(target.dtype));
    // One may be the host's, pinned.
    check(cudaMemcpyAsync(target.memory, source.memory, bytes, cudaMemcpyDefault, stream), "cast");
    return;
  }
  with_element_type(source.dtype, [&]<class From>(From) {
    with_element_type(target.dtype, [&]<class To>(To) {
      const Cast<From, To> body{elements<From>(source.memory), elements<To>(target.memory), factor};
      map<kPackOf<From, To>>(stream, "cast", body, count, body.source, body.target);
    });
  });
}

void accumulate(cudaStream_t stream, const ConstElements& source, float* target, std::int64_t count, float factor) {
  with_element_type(source.dtype, [&]<class From>(From) {
    const Accumulate<From> body{elements<From>(source.memory), target, factor};
    map<kPackOf<From, float>>(stream, "accumulate", body, count, body.source, body.target);
  });
}

}  // namespace fsdpbench::backend::cuda
