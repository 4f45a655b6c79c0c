#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// An element stored as bf16 bits. The kernels are templates over float and Bf16 that load to and store from fp32.
struct Bf16 {
  std::uint16_t bits;
};

/// Between memory and the fp32 in which all is computed; bf16 rounds to nearest even.
inline float load(float value) { return value; }
inline float load(Bf16 value) { return bf16_to_float(value.bits); }

inline void store(float& target, float value) { target = value; }
inline void store(Bf16& target, float value) { target.bits = float_to_bf16(value); }

/// Device memory, which is host memory here, as elements of T.
template <class T>
const T* elements(const std::byte* memory) {
  return reinterpret_cast<const T*>(memory);
}
template <class T>
T* elements(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}

/// Calls `kernel(T{})` with T = float or Bf16.
template <class Kernel>
void with_element_type(DType dtype, Kernel&& kernel) {
  switch (dtype) {
    case DType::f32: return kernel(float{});
    case DType::bf16: return kernel(Bf16{});
    case DType::i32:
    case DType::f64:
    case DType::u8: break;
  }
  throw std::logic_error("a numeric kernel was called with a dtype other than fp32 and bf16");
}

/// The same for the gradient of a parameter of T, which may be fp32 instead.
template <class T, class Kernel>
void with_gradient_type(DType dtype, Kernel&& kernel) {
  if (dtype == DType::f32) return kernel(float{});
  kernel(T{});
}

}  // namespace fsdpbench::backend::cpu
