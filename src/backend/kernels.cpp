#include "backend/kernels.h"

#include "backend/attention_scratch.h"
#include "base/error.h"

namespace fsdpbench::backend {
namespace {

[[noreturn]] void refuse_part() {
  throw BackendError("this backend has no kernel for a part of a vocabulary: mesh.tensor needs the CPU backend");
}

}  // namespace

void Kernels::embedding_part(const std::byte*, const std::int32_t*, std::byte*, std::int64_t, const VocabularyPart&,
                             std::int64_t, DType) {
  refuse_part();
}
void Kernels::embedding_part_backward(const std::byte*, const std::int32_t*, std::byte*, std::int64_t,
                                      const VocabularyPart&, std::int64_t, bool, DType) {
  refuse_part();
}
void Kernels::cross_entropy_terms(const std::byte*, const std::int32_t*, float*, std::int64_t, const VocabularyPart&,
                                  DType) {
  refuse_part();
}
void Kernels::cross_entropy_of_terms(std::byte*, const std::int32_t*, const float*, int, float*, std::int64_t,
                                     const VocabularyPart&, float, DType) {
  refuse_part();
}

std::int64_t attention_scratch_bytes(const AttentionShape& shape) { return AttentionScratch::forward(shape).bytes; }

std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::backward(shape).bytes;
}

}  // namespace fsdpbench::backend
