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

}  // namespace fsdpbench::backend::cpu
