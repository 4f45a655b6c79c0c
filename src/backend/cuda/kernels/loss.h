#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h. A target outside the vocabulary makes the loss and its row of gradients NaN.
void cross_entropy(cudaStream_t stream, std::byte* logits, const std::int32_t* targets, float* loss, std::int64_t rows,
                   std::int64_t vocab, std::int64_t stride, float loss_scale, DType dtype, Scratch& scratch);
/// A target outside the whole vocabulary does so on every rank.
void cross_entropy_terms(cudaStream_t stream, const std::byte* logits, const std::int32_t* targets, float* terms,
                         std::int64_t rows, const VocabularyPart& part, DType dtype);
void cross_entropy_of_terms(cudaStream_t stream, std::byte* logits, const std::int32_t* targets, const float* terms,
                            int parts, float* loss, std::int64_t rows, const VocabularyPart& part, float loss_scale,
                            DType dtype, Scratch& scratch);
void mean_squared_error(cudaStream_t stream, const std::byte* prediction, const float* target, std::byte* d_prediction,
                        float* loss, std::int64_t count, float loss_scale, DType dtype, Scratch& scratch);

}  // namespace fsdpbench::backend::cuda
