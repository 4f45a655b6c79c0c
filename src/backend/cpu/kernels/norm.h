#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// Kernels::rms_norm, on the calling thread.
void rms_norm(const std::byte* x, const std::byte* weight, std::byte* y, float* rstd, std::int64_t rows,
              std::int64_t width, float epsilon, DType dtype);
/// `sums` is scratch kept by the caller.
void rms_norm_backward(const std::byte* d_y, const std::byte* x, const std::byte* weight, const float* rstd,
                       std::byte* d_x, std::byte* d_weight, std::int64_t rows, std::int64_t width, DType dtype,
                       DType gradient_dtype, std::byte* y, std::vector<float>& sums);

}  // namespace fsdpbench::backend::cpu
