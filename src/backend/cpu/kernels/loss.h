#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// `exponentials` is scratch kept by the caller. Throws BackendError at a target outside [0, vocab).
void cross_entropy(std::byte* logits, const std::int32_t* targets, float* loss, std::int64_t rows, std::int64_t vocab,
                   float loss_scale, DType dtype, std::vector<float>& exponentials);
void mean_squared_error(const std::byte* prediction, const float* target, std::byte* d_prediction, float* loss,
                        std::int64_t count, float loss_scale, DType dtype);

}  // namespace fsdpbench::backend::cpu
