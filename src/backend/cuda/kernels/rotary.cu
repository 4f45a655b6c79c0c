// Bytes to move: queries and keys twice. The table is small beside it and stays in the cache.

#include "backend/cuda/kernels/launchers.h"

#include <cmath>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"

namespace fsdpbench::backend::cuda {
namespace {

constexpr int kTableThreads = 256;

/// In double, as on every backend.
__global__ void table_kernel(float* cosine, float* sine, std::int64_t count, std::int64_t half, double theta) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t at = thread; at < count; at += threads) {
    const double frequency = pow(theta, -static_cast<double>(at % half) / static_cast<double>(half));
    const double angle = static_cast<double>(at / half) * frequency;
    cosine[at] = static_cast<float>(cos(angle));
    sine[at] = static_cast<float>(sin(angle));
  }
}

/// A block takes the heads of a token at a time, queries' and then keys', a thread N pairs of one head. `sign` turns
/// the sine.
template <class T, int N>
__global__ void rotate_kernel(T* q, T* k, const float* cosine, const float* sine, std::int64_t tokens, std::int64_t seq,
                              int heads, int kv_heads, int half, float sign) {
  const int packs = half / N;  // a head
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const std::int64_t angles = token % seq * half;
    for (int p = static_cast<int>(threadIdx.x); p < (heads + kv_heads) * packs; p += static_cast<int>(blockDim.x)) {
      const int head = p / packs;
      const int i = (p - head * packs) * N;
      T* const start =
          head < heads ? q + (token * heads + head) * 2 * half : k + (token * kv_heads + head - heads) * 2 * half;
      T* const first = start + i;
      T* const second = first + half;
      const Floats<N> a = load<N>(first);
      const Floats<N> b = load<N>(second);
      const Floats<N> c = load<N>(cosine + angles + i);
      const Floats<N> s = load<N>(sine + angles + i);
      Floats<N> turned_a, turned_b;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float sn = sign * s[n];
        turned_a[n] = a[n] * c[n] - b[n] * sn;
        turned_b[n] = b[n] * c[n] + a[n] * sn;
      }
      store(first, turned_a);
      store(second, turned_b);
    }
  }
}

template <class T, int N>
void rotate(cudaStream_t stream, const AttentionShape& shape, T* q, T* k, const float* cosine, const float* sine,
            float sign) {
  const std::int64_t tokens = shape.batch * shape.seq, half = shape.head_dim / 2;
  launch(stream, "rotary", blocks_for(tokens), row_threads((shape.heads + shape.kv_heads) * half, N, 256),
         rotate_kernel<T, N>, q, k, cosine, sine, tokens, shape.seq, static_cast<int>(shape.heads),
         static_cast<int>(shape.kv_heads), static_cast<int>(half), sign);
}

}  // namespace

void Rotary::prepare(std::int64_t seq, std::int64_t half, float theta) {
  if (seq <= seq_ && half == half_ && theta == theta_) return;
  seq_ = seq;
  half_ = half;
  theta_ = theta;
  const std::int64_t count = seq * half;
  auto* const cosine = reinterpret_cast<float*>(table_.get(2 * count * 4));
  launch(stream_, "rotary_table", blocks_for((count + kTableThreads - 1) / kTableThreads), kTableThreads, table_kernel,
         cosine, cosine + count, count, half, static_cast<double>(theta));
}

void Rotary::operator()(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) {
  const std::int64_t half = shape.head_dim / 2;
  if (shape.batch * shape.seq == 0 || shape.heads + shape.kv_heads == 0 || half == 0) return;
  prepare(shape.seq, half, theta);
  auto* const cosine = reinterpret_cast<const float*>(table_.get(0));
  const float* const sine = cosine + seq_ * half_;
  with_element_type(shape.dtype, [&]<class T>(T) {
    const float sign = inverse ? -1.0F : 1.0F;
    if (half % kPack<T> == 0 && aligned(elements<T>(q)) && aligned(elements<T>(k))) {
      rotate<T, kPack<T>>(stream_, shape, elements<T>(q), elements<T>(k), cosine, sine, sign);
    } else {
      rotate<T, 1>(stream_, shape, elements<T>(q), elements<T>(k), cosine, sine, sign);
    }
  });
}

}  // namespace fsdpbench::backend::cuda
