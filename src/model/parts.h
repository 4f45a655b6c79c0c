#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "config/run_config.h"
#include "model/model.h"
#include "plan/module_sizes.h"
#include "plan/module_work.h"

/// The parts that a decoder's passes run in where several ranks split its layers (see [Note: parts] in model.h), alike
/// for all kinds of decoders. FLOPs are one rank's.
namespace fsdpbench::model {

/// Tensors between layers: the residual stream, of all tokens or of those that are this rank's.
struct Stream {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  DType dtype = DType::f32;

  Stream(const config::Model& model, BatchShape batch, TensorSplit split)
      : rows(split.tokens ? batch.rows() / split.ranks : batch.rows()), width(model.width), dtype(batch.dtype) {}

  backend::RowShape shape() const { return {rows, width, dtype}; }
  std::int64_t count() const { return rows * width; }
  /// Throws ResourceError if that is more than 8 EiB.
  std::int64_t bytes() const { return checked_product(rows, width, size_of(dtype)); }
  /// This rank's rows of what all exchange, if they split the tokens.
  std::byte* in_exchange(const ModuleCall& call) const { return call.exchange + call.tensor.index * bytes(); }
  void copy(backend::Kernels& kernels, const std::byte* from, std::byte* to) const {
    kernels.cast({from, dtype}, {to, dtype}, count(), 1.0F);
  }
};

/// Floats that a rank tells the others about its tokens' logits: of each row the largest, the sum of exponentials above
/// it, and the target's logit.
inline std::int64_t loss_terms(BatchShape batch) { return 3 * batch.rows(); }

/// Fill in the parts of the passes of a block whose keys and values ranks exchange that split each sequence: `batch` is
/// what one of them has.
void set_context_parts(const config::Model& model, BatchShape batch, std::int64_t ranks, const plan::ModuleWork& work,
                       plan::ModuleSizes& sizes);

/// Fill in the parts of the passes of a block whose experts ranks split: `rows` are those of the busiest of them.
/// Tokens are routed, their rows go to the experts, and what these made of them comes back and is added up: the same in
/// a recomputation, whose backward wants it all. In backward the gradients of what came back go to the experts, and
/// those of what was sent come from them.
void set_expert_parts(const config::Model& model, BatchShape batch, const plan::ExpertSplit& experts, std::int64_t rows,
                      const plan::ModuleWork& work, plan::ModuleSizes& sizes);

/// Fill in the parts of the passes of a block, of the embedding, and of the head, whose FLOPs are in `sizes`.
void set_block_parts(const config::Model& model, BatchShape batch, TensorSplit split, const plan::BlockFlops& forward,
                     const plan::BlockFlops& backward, plan::ModuleSizes& sizes);
void set_embedding_parts(const config::Model& model, BatchShape batch, TensorSplit split, plan::ModuleSizes& sizes);
void set_head_parts(const config::Model& model, BatchShape batch, TensorSplit split, plan::ModuleSizes& sizes);

}  // namespace fsdpbench::model
