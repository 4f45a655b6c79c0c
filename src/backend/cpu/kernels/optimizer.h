#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void sum_of_squares(const Gradient& x, std::int64_t count, double factor, double* sum, bool overwrite);
void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor);
void sgd(float* parameter, const Gradient& gradient, std::int64_t count, float learning_rate, float weight_decay,
         const float* gradient_scale, std::byte* rounded);
void adamw(float* parameter, const Gradient& gradient, float* first_moment, float* second_moment, std::int64_t count,
           const AdamWStep& step, std::byte* rounded);

}  // namespace fsdpbench::backend::cpu
