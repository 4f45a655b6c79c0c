#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// `exponentials` is scratch kept by the caller. Throws BackendError at a target outside [0, vocab).
void cross_entropy(std::byte* logits, const std::int32_t* targets, float* loss, std::int64_t rows, std::int64_t vocab,
                   std::int64_t stride, float loss_scale, DType dtype, std::vector<float>& exponentials);
/// Kernels::cross_entropy_terms and cross_entropy_of_terms. Throw BackendError at a target outside [0, part.whole).
void cross_entropy_terms(const std::byte* logits, const std::int32_t* targets, float* terms, std::int64_t rows,
                         const VocabularyPart& part, DType dtype);
void cross_entropy_of_terms(std::byte* logits, const std::int32_t* targets, const float* terms, int parts, float* loss,
                            std::int64_t rows, const VocabularyPart& part, float loss_scale, DType dtype);
void mean_squared_error(const std::byte* prediction, const float* target, std::byte* d_prediction, float* loss,
                        std::int64_t count, float loss_scale, DType dtype);

}  // namespace fsdpbench::backend::cpu
