#pragma once

#include <cuda_bf16.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// Cut of work into blocks. Depends on sizes alone, never on the device or on alignments, where it decides in which
/// order something is summed.

constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;  // of a grid's first dimension
constexpr std::int64_t kMostOthers = 65535;                        // of the others

/// Blocks for one a unit of work; kernels go on in strides of the grid where there are more.
constexpr unsigned blocks_for(std::int64_t units) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(units, 0, kMostBlocks));
}

/// Threads of a block that takes one row: a power of two, one pack a thread where the row is that short.
constexpr unsigned row_threads(std::int64_t width, int pack, unsigned most) {
  unsigned threads = 32;
  while (threads < most && static_cast<std::int64_t>(threads) * pack < width) threads *= 2;
  return threads;
}

/// Device memory as elements of T.
template <class T>
const T* elements(const std::byte* memory) {
  return reinterpret_cast<const T*>(memory);
}
template <class T>
T* elements(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}

/// Calls `work(T{})` with T = float or __nv_bfloat16, the types that kernels load from and store to fp32.
template <class Work>
void with_element_type(DType dtype, Work&& work) {
  switch (dtype) {
    case DType::f32: return work(float{});
    case DType::bf16: return work(__nv_bfloat16{});
    case DType::i32:
    case DType::f64:
    case DType::u8: break;
  }
  throw std::logic_error("a numeric kernel was called with a dtype other than fp32 and bf16");
}

/// Calls `work` for the gradient of a parameter of T, which may be fp32 instead.
template <class T, class Work>
void with_gradient_type(DType dtype, Work&& work) {
  if (dtype == DType::f32) return work(float{});
  work(T{});
}

}  // namespace fsdpbench::backend::cuda
