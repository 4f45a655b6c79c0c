#pragma once

#include "backend/cpu/kernels/matmul.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Causal grouped-query attention by blocks of query rows: a block multiplies only with the keys up to its last row,
/// so that about half of the full product is computed. The forward keeps the log-sum-exp of each row, from which the
/// backward computes the probabilities again.
void attention(Matmul& matmul, const AttentionCall& call);
void attention_backward(Matmul& matmul, const AttentionBackwardCall& call);

}  // namespace fsdpbench::backend::cpu
