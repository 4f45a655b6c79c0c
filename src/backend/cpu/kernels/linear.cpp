#include "backend/cpu/kernels/linear.h"

#include "backend/cpu/kernels/column_sums.h"
#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {

void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias) {
  with_element_type(shape.dtype, [&]<class T>(T) {
    const T* const b = elements<T>(bias);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      T* const target = elements<T>(y) + row * shape.width;
      for (std::int64_t j = 0; j < shape.width; ++j) store(target[j], load(target[j]) + load(b[j]));
    }
  });
}

void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias, std::vector<float>& memory) {
  ColumnSums sums(memory, shape.width);
  with_element_type(shape.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const T* const source = elements<T>(d_y) + row * shape.width;
      float* const sum = sums.next_row();
      for (std::int64_t j = 0; j < shape.width; ++j) sum[j] += load(source[j]);
    }
    with_gradient_type<T>(d_bias.dtype, [&]<class G>(G) { sums.store_to(elements<G>(d_bias.memory)); });
  });
}

void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const source = elements<T>(x);
    T* const target = elements<T>(y);
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = load(source[i]);
      store(target[i], v < 0.0F ? 0.0F : v);  // a NaN stays visible
    }
  });
}

void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const gradient = elements<T>(d_y);
    const T* const output = elements<T>(y);
    T* const target = elements<T>(d_x);
    for (std::int64_t i = 0; i < count; ++i) {
      const float d = load(gradient[i]);
      store(target[i], load(output[i]) > 0.0F ? d : 0.0F);
    }
  });
}

void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) {
  with_element_type(dtype, [&]<class T>(T) {
    const T* const a = elements<T>(x);
    const T* const b = elements<T>(residual);
    T* const target = elements<T>(y);
    for (std::int64_t i = 0; i < count; ++i) store(target[i], load(a[i]) + load(b[i]));
  });
}

}  // namespace fsdpbench::backend::cpu
