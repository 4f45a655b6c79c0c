#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "base/dtype.h"

/// What stands around the matrix products: bias, ReLU, residual.
namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias);
/// `sums` is scratch kept by the caller.
void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias, std::vector<float>& sums);
void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype);
void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count, DType dtype);
void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype);

}  // namespace fsdpbench::backend::cpu
