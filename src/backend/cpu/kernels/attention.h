#pragma once

#include <cstddef>

#include "backend/cpu/kernels/matmul.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Causal grouped-query attention by blocks of query rows: a block multiplies only with the keys up to its last row,
/// so that about half of the full product is computed. The forward keeps the log-sum-exp of each row, from which the
/// backward computes the probabilities again.
void attention(Matmul& matmul, const AttentionShape& shape, const std::byte* q, const std::byte* k, const std::byte* v,
               std::byte* out, float* log_sum_exp, std::byte* scratch);
void attention_backward(Matmul& matmul, const AttentionShape& shape, const std::byte* d_out, const std::byte* q,
                        const std::byte* k, const std::byte* v, const std::byte* out, const float* log_sum_exp,
                        std::byte* d_q, std::byte* d_k, std::byte* d_v, std::byte* scratch);

}  // namespace fsdpbench::backend::cpu
