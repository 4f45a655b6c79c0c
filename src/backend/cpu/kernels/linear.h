#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

/// What stands around the matrix products: bias, ReLU, residual.
namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void add_bias(std::byte* y, const std::byte* bias, std::int64_t rows, std::int64_t width, DType dtype);
/// `sums` is scratch kept by the caller.
void bias_backward(const std::byte* d_y, std::byte* d_bias, std::int64_t rows, std::int64_t width, DType dtype,
                   DType gradient_dtype, std::vector<float>& sums);
void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype);
void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count, DType dtype);
void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype);

}  // namespace fsdpbench::backend::cpu
