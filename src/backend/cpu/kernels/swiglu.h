#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// Kernels::swiglu and swiglu_backward, on the calling thread.
void swiglu(const std::byte* gate, const std::byte* up, std::byte* y, std::int64_t rows, std::int64_t width,
            std::int64_t stride, DType dtype);
void swiglu_backward(const std::byte* d_y, const std::byte* gate, const std::byte* up, std::byte* d_gate,
                     std::byte* d_up, std::int64_t rows, std::int64_t width, std::int64_t stride, DType dtype,
                     std::byte* y);

}  // namespace fsdpbench::backend::cpu
