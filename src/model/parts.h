#pragma once

#include <vector>

#include "config/run_config.h"
#include "model/model.h"
#include "plan/module_sizes.h"

/// The parts that a decoder's passes run in where several ranks split its layers (see [Note: parts] in model.h), alike
/// for all kinds of decoders. FLOPs are one rank's.
namespace fsdpbench::model {

/// Floats that a rank tells the others about its tokens' logits: of each row the largest, the sum of exponentials above
/// it, and the target's logit.
inline std::int64_t loss_terms(BatchShape batch) { return 3 * batch.rows(); }

/// Followed by the sum of the residual stream over the ranks.
inline plan::ModulePart summed(const config::Model& model, BatchShape batch, double flops) {
  return {flops, plan::ModulePart::Exchange::sum, batch.rows() * model.width, batch.dtype};
}

/// By halves of a block: attention with its projections, and feed-forward, of which the last product is `contracting`.
struct BlockFlops {
  double attention = 0;
  double feed_forward = 0;
  double contracting = 0;
};
/// Fills in the three passes of a block.
inline void set_block_parts(const config::Model& model, BatchShape batch, const BlockFlops& forward,
                            const BlockFlops& backward, plan::ModuleSizes& sizes) {
  sizes.forward_parts = {summed(model, batch, forward.attention), summed(model, batch, forward.feed_forward), {}};
  sizes.recompute_parts = {summed(model, batch, forward.attention),
                           {.flops = forward.feed_forward - forward.contracting}};
  sizes.backward_parts = {summed(model, batch, backward.feed_forward), summed(model, batch, backward.attention), {}};
}

/// Of the embedding and the head.
inline void set_embedding_parts(const config::Model& model, BatchShape batch, plan::ModuleSizes& sizes) {
  sizes.forward_parts = {summed(model, batch, 0)};
}
inline void set_head_parts(const config::Model& model, BatchShape batch, plan::ModuleSizes& sizes) {
  sizes.forward_parts = {{sizes.forward_flops, plan::ModulePart::Exchange::gather, loss_terms(batch), DType::f32}, {}};
  sizes.backward_parts = {summed(model, batch, sizes.backward_flops), {}};
}

}  // namespace fsdpbench::model
