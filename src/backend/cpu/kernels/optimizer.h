#pragma once

#include <cstdint>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void sum_of_squares(const ConstElements& x, std::int64_t count, double factor, double* sum, bool overwrite);
void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor);
void sgd(const ParameterUpdate& update, const SgdStep& step);
void adamw(const ParameterUpdate& update, const AdamWStep& step);

}  // namespace fsdpbench::backend::cpu
