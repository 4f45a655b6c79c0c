#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void add_bias(cudaStream_t stream, const RowShape& shape, std::byte* y, const std::byte* bias);
void bias_backward(cudaStream_t stream, const RowShape& shape, const std::byte* d_y, const Elements& d_bias,
                   Scratch& scratch);
void relu(cudaStream_t stream, const std::byte* x, std::byte* y, std::int64_t count, DType dtype);
void relu_backward(cudaStream_t stream, const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                   DType dtype);
void add(cudaStream_t stream, const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count,
         DType dtype);

}  // namespace fsdpbench::backend::cuda
