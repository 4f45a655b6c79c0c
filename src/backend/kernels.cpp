#include "backend/kernels.h"

#include "backend/attention_scratch.h"

namespace fsdpbench::backend {

std::int64_t attention_scratch_bytes(const AttentionShape& shape) { return AttentionScratch::forward(shape).bytes; }

std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::backward(shape).bytes;
}

}  // namespace fsdpbench::backend
