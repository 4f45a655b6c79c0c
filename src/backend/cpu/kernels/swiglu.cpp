#include "backend/cpu/kernels/swiglu.h"

#include <algorithm>

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

/// One long row if all rows touch.
template <class Call>
RowShape of_touching_rows(const Call& call) {
  RowShape s = call.shape;
  if (call.used != nullptr) s.rows = std::min<std::int64_t>(s.rows, *call.used);
  return call.row() == s.width ? RowShape{1, s.rows * s.width, s.dtype} : s;
}

}  // namespace

void swiglu(const SwigluCall& call) {
  const RowShape shape = of_touching_rows(call);
  with_element_type(shape.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const std::int64_t at = row * call.row();
      forward(elements<T>(call.gate) + at, elements<T>(call.up) + at, elements<T>(call.y) + row * shape.width,
              shape.width);
    }
  });
}

void swiglu_backward(const SwigluBackwardCall& call) {
  const RowShape shape = of_touching_rows(call);
  // Only written if the product takes its place.
  auto* const d_y = const_cast<std::byte*>(call.d_y);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  with_element_type(shape.dtype, [&]<class T>(T) {
    const auto work = call.y == nullptr    ? backward<Product::none, T>
                      : call.y == call.d_y ? backward<Product::in_place, T>
                                           : backward<Product::apart, T>;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const std::int64_t at = row * call.row(), of_y = row * shape.width;
      T* const product = call.y == nullptr ? nullptr : elements<T>(call.y) + of_y;
      work(elements<T>(d_y) + of_y, elements<T>(call.gate) + at, elements<T>(call.up) + at,
           elements<T>(call.d_gate) + at, elements<T>(call.d_up) + at, product, shape.width);
    }
  });
}

}  // namespace fsdpbench::backend::cpu
