#pragma once

#include <cstdint>
#include <span>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// As Kernels::cast, accumulate and copy_runs of backend/kernels.h say; on the calling thread. Throws std::logic_error
/// for a pair of dtypes that they do not name.
void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor);
void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor);
void copy_runs(const ConstElements& source, const Elements& target, std::span<const CopyRun> runs);

/// Each as the function of its name in backend::Kernels, on the calling thread.
void sum_of_squares(const ConstElements& x, std::int64_t count, double factor, double* sum, bool overwrite);
void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor);
void sgd(const ParameterUpdate& update, const SgdStep& step);
void adamw(const ParameterUpdate& update, const AdamWStep& step);

}  // namespace fsdpbench::backend::cpu
