#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype, std::int64_t count,
          float factor);
void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count, float factor);
void copy_runs(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
               std::span<const CopyRun> runs);

}  // namespace fsdpbench::backend::cpu
