#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <stdexcept>

#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

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

/// The same for the gradient of a parameter of T, which may be fp32 instead.
template <class T, class Work>
void with_gradient_type(DType dtype, Work&& work) {
  if (dtype == DType::f32) return work(float{});
  work(T{});
}

}  // namespace fsdpbench::backend::cuda
