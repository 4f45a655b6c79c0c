#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// A block of one head's query rows [begin, begin + rows) and its scores: row r of a tile has `keys` elements, of which
/// the first begin + r + 1 may be looked at. Rows of tiles are `seq` elements apart, those of the output
/// heads * head_dim; pointers into tensors are to the block's first row.
struct AttentionBlock {
  std::int64_t begin = 0, rows = 0, keys = 0;
};

/// probabilities = softmax(scores / sqrt(head_dim)), 0 where a key may not be looked at; log_sum_exp [rows]. The scores
/// are lost. In f32 the two tiles may be the same.
void attention_softmax(cudaStream_t stream, const AttentionShape& shape, const AttentionBlock& block, float* scores,
                       std::byte* probabilities, float* log_sum_exp);

/// The tiles of the backward: f32 ones, and those in the tensors' dtype, which may be the same if that is f32.
struct AttentionGradientTiles {
  float* scores = nullptr;
  std::byte* probabilities = nullptr;  ///< written
  float* d_probabilities = nullptr;
  std::byte* d_scores = nullptr;  ///< written
};

/// From scores and d_probabilities to probabilities and d_scores.
void attention_softmax_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionBlock& block,
                                const AttentionGradientTiles& tiles, const std::byte* d_out, const std::byte* out,
                                const float* log_sum_exp);

/// Rows of head_dim f32 sums to the rows of one head of keys or values.
void store_head(cudaStream_t stream, const AttentionShape& shape, const float* sums, std::byte* head);

}  // namespace fsdpbench::backend::cuda
