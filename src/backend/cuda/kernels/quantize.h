#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// As Kernels' functions of these names, with the CPU's bits; on `stream`. Throw BackendError.

void quantize(cudaStream_t stream, const ConstElements& source, std::byte* part, std::int64_t count, float factor,
              Quantization format);
void dequantize(cudaStream_t stream, const QuantizedParts& parts, const Elements& target,
                std::span<const CopyRun> runs);
void sum_quantized(cudaStream_t stream, const QuantizedParts& parts, int sources, float scale, const Elements& target);
void requantize_sum(cudaStream_t stream, const QuantizedParts& parts, int sources, std::byte* part);

}  // namespace fsdpbench::backend::cuda
