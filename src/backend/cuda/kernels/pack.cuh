#pragma once

// Elements in memory, as fp32 in registers. A pack is the neighbouring elements that one thread takes at once: 16 bytes
// of the narrowest type in play. Whether it is moved by 16-byte accesses or element by element changes no bits.

#include <cstdint>
#include <cstring>

#include "backend/cuda/kernels/launch.cuh"

namespace fsdpbench::backend::cuda {

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));
/// Elements a pack if both types are in play.
template <class A, class B>
inline constexpr int kPackOf = kPack<A> > kPack<B> ? kPack<A> : kPack<B>;

template <int N>
struct Floats {
  float values[N];
  __device__ float& operator[](int i) { return values[i]; }
  __device__ float operator[](int i) const { return values[i]; }
};

/// N elements as they lie in memory, accessed by 16 bytes (8 if they are only so many).
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T values[N];
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline void set(float& target, float value) { target = value; }
__device__ inline void set(__nv_bfloat16& target, float value) { target = __float2bfloat16_rn(value); }

/// N elements; 16-byte aligned if N > 1.
template <int N, class T>
__device__ Floats<N> load(const T* source) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(source);
  Floats<N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = to_float(pack.values[i]);
  return result;
}
template <int N>
__device__ void store(float* target, const Floats<N>& values) {
  Pack<float, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = values[i];
  *reinterpret_cast<Pack<float, N>*>(target) = pack;
}
/// The bits of 8 elements, as what one instruction stores: the compiler does not always join narrower ones.
__extension__ using Bits128 = unsigned __int128;

template <int N>
__device__ void store(__nv_bfloat16* target, const Floats<N>& values) {
  static_assert(N % 8 == 0);
#pragma unroll
  for (int at = 0; at < N; at += 8) {
    Bits128 bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(values[at + i], values[at + i + 1]);  // one instruction rounds two
      std::uint32_t of_pair = 0;
      std::memcpy(&of_pair, &pair, sizeof pair);
      bits |= Bits128{of_pair} << (16 * i);
    }
    *reinterpret_cast<Bits128*>(target + at) = bits;
  }
}
template <>
__device__ inline void store<1>(__nv_bfloat16* target, const Floats<1>& values) {
  *target = __float2bfloat16_rn(values[0]);
}

/// Elements [at, at + N) of an array of `count`; `missing` stands for those behind its end. `vector`: at is a 16-byte
/// boundary.
template <int N, class T>
__device__ Floats<N> load_part(const T* array, std::int64_t at, std::int64_t count, bool vector, float missing = 0.0F) {
  if (vector && at + N <= count) return load<N>(array + at);
  Floats<N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = at + i < count ? to_float(array[at + i]) : missing;
  return result;
}
template <int N, class T>
__device__ void store_part(T* array, std::int64_t at, std::int64_t count, bool vector, const Floats<N>& values) {
  if (vector && at + N <= count) return store<N>(array + at, values);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at + i < count) set(array[at + i], values[i]);
  }
}

/// Whether 16-byte accesses are allowed there.
inline bool aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0; }
/// Packs every row of a matrix.
template <class T>
bool rows_aligned(const T* matrix, std::int64_t width) {
  return aligned(matrix) && width % kPack<T> == 0;
}

}  // namespace fsdpbench::backend::cuda
