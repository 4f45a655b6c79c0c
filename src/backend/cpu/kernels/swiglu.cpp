#include "backend/cpu/kernels/swiglu.h"

#include <utility>

#include "backend/cpu/kernels/element.h"
#include "backend/cpu/kernels/vector_math.h"

namespace fsdpbench::backend::cpu {
namespace {

template <class T>
void forward(const T* __restrict gate, const T* __restrict up, T* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(gate[i]);
    store(y[i], g * sigmoid(g) * load(up[i]));
  }
}

/// Where backward puts the product: nowhere, apart, or in d_y's place.
enum class Product : std::uint8_t { none, apart, in_place };

template <Product kProduct, class T>
void backward(T* __restrict d_y, const T* __restrict gate, const T* __restrict up, T* __restrict d_gate,
              T* __restrict d_up, T* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = load(gate[i]);
    const float u = load(up[i]);
    const float d = load(d_y[i]);
    const float s = sigmoid(g);
    store(d_up[i], d * g * s);
    store(d_gate[i], d * u * s * (1.0F + g * (1.0F - s)));
    if constexpr (kProduct == Product::apart) store(y[i], g * s * u);
    if constexpr (kProduct == Product::in_place) store(d_y[i], g * s * u);
  }
}

}  // namespace

void swiglu(const std::byte* gate, const std::byte* up, std::byte* y, std::int64_t rows, std::int64_t width,
            std::int64_t stride, DType dtype) {
  if (stride == width) width = std::exchange(rows, 1) * width;
  with_element_type(dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * stride;
      forward(elements<T>(gate) + at, elements<T>(up) + at, elements<T>(y) + row * width, width);
    }
  });
}

void swiglu_backward(const std::byte* d_y, const std::byte* gate, const std::byte* up, std::byte* d_gate,
                     std::byte* d_up, std::int64_t rows, std::int64_t width, std::int64_t stride, DType dtype,
                     std::byte* y) {
  if (stride == width) width = std::exchange(rows, 1) * width;
  // Only written if the product takes its place.
  auto* const source = const_cast<std::byte*>(d_y);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  with_element_type(dtype, [&]<class T>(T) {
    const auto work = y == nullptr ? backward<Product::none, T>
                      : y == d_y   ? backward<Product::in_place, T>
                                   : backward<Product::apart, T>;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * stride, of_y = row * width;
      T* const product = y == nullptr ? nullptr : elements<T>(y) + of_y;
      work(elements<T>(source) + of_y, elements<T>(gate) + at, elements<T>(up) + at, elements<T>(d_gate) + at,
           elements<T>(d_up) + at, product, width);
    }
  });
}

}  // namespace fsdpbench::backend::cpu
