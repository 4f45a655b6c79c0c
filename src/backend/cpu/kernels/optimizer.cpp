#include "backend/cpu/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/copy.h"
#include "backend/cpu/kernels/element.h"
#include "backend/cpu/kernels/vector_math.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Calls update(begin, end) until all `count` parameters are done, and rounds each block while it is in the cache.
template <class Update>
void in_blocks(const float* parameter, std::int64_t count, std::byte* rounded, const Update& update) {
  constexpr std::int64_t kBlock = 4096;
  if (rounded == nullptr) return update(0, count);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    update(begin, end);
    cast(reinterpret_cast<const std::byte*>(parameter + begin), DType::f32, rounded + begin * size_of(DType::bf16),
         DType::bf16, end - begin, 1.0F);
  }
}

}  // namespace

void sum_of_squares(const Gradient& x, std::int64_t count, double factor, double* sum, bool overwrite) {
  with_element_type(x.dtype, [&]<class G>(G) {
    const G* const values = elements<G>(x.memory);
    const double squares = lane_sum<double>(count, [values](std::int64_t i) {
      const double v = load(values[i]);
      return v * v;
    });
    *sum = factor * squares + (overwrite ? 0.0 : *sum);
  });
}

void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) {
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += sums[i];
  const double limit = max_norm / (std::sqrt(total) + 1e-6);
  *factor = static_cast<float>(limit > 1.0 ? 1.0 : limit);  // a NaN norm gives a NaN
}

void sgd(float* parameter, const Gradient& gradient, std::int64_t count, float learning_rate, float weight_decay,
         const float* gradient_scale, std::byte* rounded) {
  float* __restrict const p = parameter;
  const float scale = gradient_scale != nullptr ? *gradient_scale : 1.0F;
  with_element_type(gradient.dtype, [&]<class G>(G) {
    const G* __restrict const g = elements<G>(gradient.memory);
    in_blocks(parameter, count, rounded, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) p[i] -= learning_rate * (scale * load(g[i]) + weight_decay * p[i]);
    });
  });
}

void adamw(float* parameter, const Gradient& gradient, float* first_moment, float* second_moment, std::int64_t count,
           const AdamWStep& step, std::byte* rounded) {
  // The scalars in double, as torch has them.
  const double beta1 = step.beta1;
  const double beta2 = step.beta2;
  const auto t = static_cast<double>(step.step);
  const auto decay = static_cast<float>(1.0 - static_cast<double>(step.learning_rate) * step.weight_decay);
  const auto step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(beta1, t)));
  const auto root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, t)));
  const auto weight1 = static_cast<float>(1.0 - beta1);
  const auto weight2 = static_cast<float>(1.0 - beta2);
  const float keep2 = step.beta2;
  const float epsilon = step.epsilon;
  const float scale = step.gradient_scale != nullptr ? *step.gradient_scale : 1.0F;
  float* __restrict const p = parameter;
  float* __restrict const m = first_moment;
  float* __restrict const v = second_moment;
  with_element_type(gradient.dtype, [&]<class G>(G) {
    const G* __restrict const g = elements<G>(gradient.memory);
    in_blocks(parameter, count, rounded, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float gi = scale * load(g[i]);
        m[i] = m[i] + weight1 * (gi - m[i]);
        v[i] = keep2 * v[i] + weight2 * gi * gi;
        p[i] = p[i] * decay - step_size * (m[i] / (std::sqrt(v[i]) / root_correction + epsilon));
      }
    });
  });
}

}  // namespace fsdpbench::backend::cpu
