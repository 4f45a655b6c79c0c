#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Kernels::embedding_part and its backward; the whole vocabulary is a part, too. A token outside the whole vocabulary
/// gives a row of NaN forward, so that the loss shows it, and nothing backward.
void embedding(cudaStream_t stream, const std::byte* table, const std::int32_t* tokens, std::byte* y,
               std::int64_t count, const VocabularyPart& part, std::int64_t width, DType dtype);
void embedding_backward(cudaStream_t stream, const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table,
                        std::int64_t count, const VocabularyPart& part, std::int64_t width, bool overwrite, DType dtype,
                        DType gradient_dtype, Scratch& scratch);

}  // namespace fsdpbench::backend::cuda
