#include "backend/cpu/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/copy.h"
#include "backend/cpu/kernels/element.h"
#include "backend/cpu/kernels/vector_math.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Calls work(begin, end) until all parameters are done, and rounds each block while it is in the cache.
template <class Work>
void in_blocks(const ParameterUpdate& update, const Work& work) {
  constexpr std::int64_t kBlock = 4096;
  if (update.rounded == nullptr) return work(0, update.count);
  const Elements rounded{update.rounded, DType::bf16};
  for (std::int64_t begin = 0; begin < update.count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, update.count);
    work(begin, end);
    cast(update.parameter + begin, rounded.after(begin), end - begin, 1.0F);
  }
}

}  // namespace

void sum_of_squares(const ConstElements& x, std::int64_t count, double factor, double* sum, bool overwrite) {
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

void sgd(const ParameterUpdate& update, const SgdStep& step) {
  float* __restrict const p = update.parameter;
  const float scale = step.gradient_scale != nullptr ? *step.gradient_scale : 1.0F;
  const float learning_rate = step.learning_rate, weight_decay = step.weight_decay;
  with_element_type(update.gradient.dtype, [&]<class G>(G) {
    const G* __restrict const g = elements<G>(update.gradient.memory);
    in_blocks(update, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) p[i] -= learning_rate * (scale * load(g[i]) + weight_decay * p[i]);
    });
  });
}

void adamw(const ParameterUpdate& update, const AdamWStep& step) {
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
  float* __restrict const p = update.parameter;
  float* __restrict const m = update.first_moment;
  float* __restrict const v = update.second_moment;
  with_element_type(update.gradient.dtype, [&]<class G>(G) {
    const G* __restrict const g = elements<G>(update.gradient.memory);
    in_blocks(update, [=](std::int64_t begin, std::int64_t end) {
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
