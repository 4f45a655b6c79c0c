#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void swiglu(cudaStream_t stream, const std::byte* gate, const std::byte* up, std::byte* y, std::int64_t rows,
            std::int64_t width, std::int64_t stride, DType dtype);
void swiglu_backward(cudaStream_t stream, const std::byte* d_y, const std::byte* gate, const std::byte* up,
                     std::byte* d_gate, std::byte* d_up, std::int64_t rows, std::int64_t width, std::int64_t stride,
                     DType dtype, std::byte* y);

}  // namespace fsdpbench::backend::cuda
