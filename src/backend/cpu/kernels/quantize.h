#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread. The bits of a block depend on its
/// numbers alone.
void quantize(const std::byte* source, DType dtype, std::byte* part, std::int64_t count, float factor,
              Quantization format);
void dequantize(const QuantizedParts& parts, std::byte* target, DType dtype, std::span<const CopyRun> runs);
void sum_quantized(const QuantizedParts& parts, int sources, float scale, std::byte* target, DType dtype);
void requantize_sum(const QuantizedParts& parts, int sources, std::byte* part);

}  // namespace fsdpbench::backend::cpu
