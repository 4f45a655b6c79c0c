#include "backend/cpu/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {
namespace {

template <class From, class To>
void convert(const From* source, To* target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(target[i], load(source[i]));
}

/// Calls `copy(source offset, target offset, count)` for each row of a run, or once where rows touch on both sides.
template <class Copy>
void for_each_row(const CopyRun& run, Copy&& copy) {
  if (run.source_stride == run.run && run.target_stride == run.run)
    return copy(run.source, run.target, run.rows * run.run);
  for (std::int64_t row = 0; row < run.rows; ++row) {
    copy(run.source + row * run.source_stride, run.target + row * run.target_stride, run.run);
  }
}

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

void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) {
  if (source.dtype == target.dtype && factor == 1.0F) {
    const std::size_t bytes = count * size_of(target.dtype);
    if (source.memory != target.memory) std::memmove(target.memory, source.memory, bytes);
    return;
  }
  with_element_type(source.dtype, [&]<class From>(From) {
    with_element_type(target.dtype, [&]<class To>(To) {
      const From* const from = elements<From>(source.memory);
      To* const to = elements<To>(target.memory);
      for (std::int64_t i = 0; i < count; ++i) store(to[i], factor * load(from[i]));
    });
  });
}

void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor) {
  with_element_type(source.dtype, [&]<class T>(T) {
    const T* const from = elements<T>(source.memory);
    for (std::int64_t i = 0; i < count; ++i) target[i] += factor * load(from[i]);
  });
}

void copy_runs(const ConstElements& source, const Elements& target, std::span<const CopyRun> runs) {
  const std::int64_t size = size_of(target.dtype);
  for (const CopyRun& run : runs) {
    if (run.rows > 0 && run.run > 0) {
      if (source.dtype == target.dtype) {
        for_each_row(run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
          std::memcpy(target.memory + to * size, source.memory + from * size, count * size);
        });
      } else {
        with_element_type(source.dtype, [&]<class From>(From) {
          with_element_type(target.dtype, [&]<class To>(To) {
            for_each_row(run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
              convert(elements<From>(source.memory) + from, elements<To>(target.memory) + to, count);
            });
          });
        });
      }
    }
    if (run.zero_fill > 0) {
      const std::int64_t end = run.rows > 0 ? run.target + (run.rows - 1) * run.target_stride + run.run : run.target;
      std::memset(target.memory + end * size, 0, run.zero_fill * size);
    }
  }
}

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
