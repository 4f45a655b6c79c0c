#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// As Kernels::cast, accumulate and copy_runs of backend/kernels.h say; on the calling thread. Throws std::logic_error
/// for a pair of dtypes that they do not name.
void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype, std::int64_t count,
          float factor);
void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count, float factor);
void copy_runs(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
               std::span<const CopyRun> runs);

}  // namespace fsdpbench::backend::cpu
