#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// Rows of a table by token. Throws BackendError at a token outside [0, whole).
class Embedding {
 public:
  /// Kernels::embedding_part; the whole vocabulary is a part, too.
  void forward(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
               const VocabularyPart& part, std::int64_t width, DType dtype);
  /// Kernels::embedding_part_backward: sums in the order of the tokens, whatever their ids.
  void backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table, std::int64_t count,
                const VocabularyPart& part, std::int64_t width, bool overwrite, DType dtype, DType gradient_dtype);

 private:
  void sort_by_token(const std::int32_t* tokens, std::int64_t count, const VocabularyPart& part);

  // Scratch, kept for its allocation.
  std::vector<std::int64_t> first_;      // per token id: where its positions start in positions_; one more at the end
  std::vector<std::int64_t> positions_;  // positions of all tokens, by id, in order within an id
  std::vector<float> row_, chunk_;
};

}  // namespace fsdpbench::backend::cpu
