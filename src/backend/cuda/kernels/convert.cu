// Bytes to move: cast the source and the target, accumulate the source and twice the target.

#include "backend/cuda/kernels/convert.h"

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

void cast(cudaStream_t stream, const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
          std::int64_t count, float factor) {
  if (source_dtype == target_dtype && factor == 1.0F) {
    if (source == target || count == 0) return;
    const auto bytes = static_cast<std::size_t>(count * size_of(target_dtype));
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "cast");  // one may be the host's, pinned
    return;
  }
  with_element_type(source_dtype, [&]<class From>(From) {
    with_element_type(target_dtype, [&]<class To>(To) {
      const Cast<From, To> body{elements<From>(source), elements<To>(target), factor};
      map<kPackOf<From, To>>(stream, "cast", body, count, body.source, body.target);
    });
  });
}

void accumulate(cudaStream_t stream, const std::byte* source, DType source_dtype, float* target, std::int64_t count,
                float factor) {
  with_element_type(source_dtype, [&]<class From>(From) {
    const Accumulate<From> body{elements<From>(source), target, factor};
    map<kPackOf<From, float>>(stream, "accumulate", body, count, body.source, body.target);
  });
}

}  // namespace fsdpbench::backend::cuda
