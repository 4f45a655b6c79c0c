#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/kernels.h"
#include "base/bytes.h"

namespace fsdpbench::backend {

/// Where the attention kernels keep what they compute of one block of query rows of one head at a time. Offsets are
/// bytes from the start of the scratch, multiples of 64.
struct AttentionScratch {
  static constexpr std::int64_t kBlockRows = 128;

  std::int64_t block_rows = 0;     ///< query rows a block
  std::int64_t scores = 0;         ///< f32 [block_rows, seq]; with f32 tensors the probabilities replace it
  std::int64_t probabilities = 0;  ///< [block_rows, seq] in the tensors' dtype
  std::int64_t d_scores = 0;       ///< backward: f32 [block_rows, seq]
  std::int64_t d_scores_low = 0;   ///< backward: the same in the tensors' dtype
  std::int64_t d_key = 0;          ///< backward: f32 [seq, head_dim], summed over blocks and query heads
  std::int64_t d_value = 0;        ///< backward: f32 [seq, head_dim]
  std::int64_t bytes = 0;

  /// What attention() needs for this shape.
  static AttentionScratch forward(const AttentionShape& shape) {
    AttentionScratch s;
    s.block_rows = std::min(kBlockRows, shape.seq);
    s.take_pair(shape, s.scores, s.probabilities);
    return s;
  }

  /// What attention_backward() needs.
  static AttentionScratch backward(const AttentionShape& shape) {
    AttentionScratch s = forward(shape);
    s.take_pair(shape, s.d_scores, s.d_scores_low);
    s.d_key = s.take(shape.seq * shape.head_dim * size_of(DType::f32));
    s.d_value = s.take(shape.seq * shape.head_dim * size_of(DType::f32));
    return s;
  }

 private:
  std::int64_t take(std::int64_t size) {
    const std::int64_t offset = bytes;
    bytes += round_up(size, 64);
    return offset;
  }
  /// An f32 tile, and one in the tensors' dtype, which is the same tile if that is f32.
  void take_pair(const AttentionShape& shape, std::int64_t& full, std::int64_t& low) {
    const std::int64_t tile = block_rows * shape.seq;
    full = take(tile * size_of(DType::f32));
    low = shape.dtype == DType::f32 ? full : take(tile * size_of(shape.dtype));
  }
};

/// Scratch bytes that attention needs for this shape, on every backend at most.
inline std::int64_t attention_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::forward(shape).bytes;
}
/// The same for attention_backward.
inline std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::backward(shape).bytes;
}

}  // namespace fsdpbench::backend
