#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void cast(cudaStream_t stream, const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
          std::int64_t count, float factor);
void accumulate(cudaStream_t stream, const std::byte* source, DType source_dtype, float* target, std::int64_t count,
                float factor);

}  // namespace fsdpbench::backend::cuda
