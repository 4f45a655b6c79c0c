#include "backend/cpu/kernels/norm.h"

#include <cmath>

#include "backend/cpu/kernels/column_sums.h"
#include "backend/cpu/kernels/element.h"
#include "backend/cpu/kernels/vector_math.h"

namespace fsdpbench::backend::cpu {
namespace {

template <class T>
void scale_row(const T* x, const T* weight, float r, T* __restrict y, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) store(y[j], load(x[j]) * r * load(weight[j]));
}

template <class T>
void forward_row(const T* x, const T* weight, T* __restrict y, float* rstd, std::int64_t width, float epsilon) {
  const float squares = lane_sum<float>(width, [x](std::int64_t j) {
    const float v = load(x[j]);
    return v * v;
  });
  const float r = 1.0F / std::sqrt(squares / static_cast<float>(width) + epsilon);
  *rstd = r;
  scale_row(x, weight, r, y, width);
}

template <class T>
void backward_row(const T* d_y, const T* x, const T* weight, float r, T* __restrict d_x, float* __restrict d_weight,
                  std::int64_t width) {
  const float dot = lane_sum<float>(width, [=](std::int64_t j) { return load(d_y[j]) * load(weight[j]) * load(x[j]); });
  const float along_x = dot * r * r / static_cast<float>(width);
  for (std::int64_t j = 0; j < width; ++j) {
    const float dy = load(d_y[j]);
    const float xj = load(x[j]);
    store(d_x[j], load(d_x[j]) + r * (dy * load(weight[j]) - xj * along_x));
  }
  for (std::int64_t j = 0; j < width; ++j) d_weight[j] += load(d_y[j]) * load(x[j]) * r;
}

}  // namespace

void rms_norm(const RmsNormCall& call) {
  const std::int64_t width = call.shape.width;
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < call.shape.rows; ++row) {
      forward_row(elements<T>(call.x) + row * width, elements<T>(call.weight), elements<T>(call.y) + row * width,
                  call.rstd + row, width, call.epsilon);
    }
  });
}

void rms_norm_backward(const RmsNormBackwardCall& call, std::vector<float>& memory) {
  const std::int64_t width = call.shape.width;
  ColumnSums sums(memory, width);
  with_element_type(call.shape.dtype, [&]<class T>(T) {
    const T* const weight = elements<T>(call.weight);
    for (std::int64_t row = 0; row < call.shape.rows; ++row) {
      const std::int64_t at = row * width;
      const T* const x = elements<T>(call.x) + at;
      backward_row(elements<T>(call.d_y) + at, x, weight, call.rstd[row], elements<T>(call.d_x) + at, sums.next_row(),
                   width);
      if (call.y != nullptr) scale_row(x, weight, call.rstd[row], elements<T>(call.y) + at, width);
    }
    if (call.d_weight.memory == nullptr) return;
    with_gradient_type<T>(call.d_weight.dtype, [&]<class G>(G) { sums.store_to(elements<G>(call.d_weight.memory)); });
  });
}

}  // namespace fsdpbench::backend::cpu
