#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/scratch.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void rms_norm(cudaStream_t stream, const std::byte* x, const std::byte* weight, std::byte* y, float* rstd,
              std::int64_t rows, std::int64_t width, float epsilon, DType dtype);
void rms_norm_backward(cudaStream_t stream, const std::byte* d_y, const std::byte* x, const std::byte* weight,
                       const float* rstd, std::byte* d_x, std::byte* d_weight, std::int64_t rows, std::int64_t width,
                       DType dtype, DType gradient_dtype, std::byte* y, Scratch& scratch);

}  // namespace fsdpbench::backend::cuda
