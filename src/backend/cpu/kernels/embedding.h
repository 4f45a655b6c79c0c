#pragma once

#include <cstdint>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Rows of a table by token. Throws BackendError at a token outside [0, whole).
class Embedding {
 public:
  /// Kernels::embedding and embedding_backward; the latter sums in the order of the tokens, whatever their ids.
  void forward(const EmbeddingCall& call);
  void backward(const EmbeddingBackwardCall& call);

 private:
  void sort_by_token(const std::int32_t* tokens, std::int64_t count, const VocabularyPart& part);

  // Scratch, kept for its allocation.
  std::vector<std::int64_t> first_;      // per token id: where its positions start in positions_; one more at the end
  std::vector<std::int64_t> positions_;  // positions of all tokens, by id, in order within an id
  std::vector<float> row_, chunk_;
};

}  // namespace fsdpbench::backend::cpu
