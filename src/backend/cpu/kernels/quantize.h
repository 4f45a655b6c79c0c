#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread. The bits of a block depend on its
/// numbers alone.
void quantize(const ConstElements& source, std::byte* part, std::int64_t count, float factor, Quantization format);
void dequantize(const QuantizedParts& parts, const Elements& target, std::span<const CopyRun> runs);
void sum_quantized(const QuantizedParts& parts, int sources, float scale, const Elements& target);
void requantize_sum(const QuantizedParts& parts, int sources, std::byte* part);

}  // namespace fsdpbench::backend::cpu
