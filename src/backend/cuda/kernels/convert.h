#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void cast(cudaStream_t stream, const ConstElements& source, const Elements& target, std::int64_t count, float factor);
void accumulate(cudaStream_t stream, const ConstElements& source, float* target, std::int64_t count, float factor);

}  // namespace fsdpbench::backend::cuda
