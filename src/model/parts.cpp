#include "model/parts.h"

#include <initializer_list>
#include <vector>

namespace fsdpbench::model {
namespace {

using plan::ModulePart;

/// Exchanges that may follow a part.
struct Exchanges {
  ModulePart none;
  ModulePart sum;      ///< the stream, added up; split by tokens, each rank keeps its own
  ModulePart gather;   ///< the stream, from each rank its tokens
  ModulePart terms;    ///< of the loss
  ModulePart of_norm;  ///< gradients that each rank has of its tokens alone: of one norm
  ModulePart of_block;

  Exchanges(const config::Model& model, BatchShape batch, TensorSplit split) {
    using Exchange = ModulePart::Exchange;
    const std::int64_t stream = Stream(model, batch, split).count();
    const std::int64_t norm = (model.norm == config::Norm::layer ? 2 : 1) * model.width;
    const std::int64_t biases = model.bias ? 2 * model.width : 0;  // of what is added after a sum
    sum = {0, split.tokens ? Exchange::scatter : Exchange::sum, stream, batch.dtype};
    gather = {0, Exchange::gather, stream, batch.dtype};
    terms = {0, Exchange::gather, loss_terms(batch), DType::f32};
    of_norm = {0, Exchange::sum, norm, batch.dtype};
    of_block = {0, Exchange::sum, 2 * norm + biases, batch.dtype};
  }
};

/// A part for each of `exchanges`, which does what `flops` says.
std::vector<ModulePart> parts(const std::vector<double>& flops, std::initializer_list<ModulePart> exchanges) {
  std::vector<ModulePart> all(exchanges);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].flops = flops[i];
  return all;
}

}  // namespace

void set_block_parts(const config::Model& model, BatchShape batch, TensorSplit split, const plan::BlockFlops& forward,
                     const plan::BlockFlops& backward, plan::ModuleSizes& sizes) {
  const Exchanges x(model, batch, split);
  const bool tokens = split.tokens;
  plan::BlockFlops recompute = forward;
  if (sizes.recompute_flops < sizes.forward_flops) recompute.contracting = 0;
  if (!tokens) {
    sizes.forward_parts = parts(forward.forward_parts(tokens), {x.sum, x.sum, x.none});
    sizes.recompute_parts = parts(recompute.forward_parts(tokens), {x.sum, x.none});
    sizes.backward_parts = parts(backward.backward_parts(tokens), {x.sum, x.sum, x.none});
    return;
  }
  sizes.forward_parts = parts(forward.forward_parts(tokens), {x.gather, x.sum, x.gather, x.sum, x.none});
  sizes.recompute_parts = parts(recompute.forward_parts(tokens), {x.gather, x.sum, x.gather, x.none});
  sizes.backward_parts = parts(backward.backward_parts(tokens),
                               {x.gather, x.gather, x.sum, x.gather, x.gather, x.sum, x.of_block, x.none});
}

void set_embedding_parts(const config::Model& model, BatchShape batch, TensorSplit split, plan::ModuleSizes& sizes) {
  const Exchanges x(model, batch, split);
  if (!split.tokens) {
    sizes.forward_parts = {x.sum};
    return;
  }
  sizes.forward_parts = {x.sum, x.none};
  sizes.backward_parts = {x.gather, x.none};
}

void set_head_parts(const config::Model& model, BatchShape batch, TensorSplit split, plan::ModuleSizes& sizes) {
  const Exchanges x(model, batch, split);
  const double forward = sizes.forward_flops, backward = sizes.backward_flops;
  if (!split.tokens) {
    sizes.forward_parts = parts({forward, 0}, {x.terms, x.none});
    sizes.backward_parts = parts({backward, 0}, {x.sum, x.none});
    return;
  }
  sizes.forward_parts = parts({0, forward, 0}, {x.gather, x.terms, x.none});
  sizes.backward_parts = parts({0, backward, 0, 0}, {x.gather, x.sum, x.of_norm, x.none});
}

void set_context_parts(const config::Model& model, BatchShape batch, std::int64_t ranks, const plan::ModuleWork& work,
                       plan::ModuleSizes& sizes) {
  using Exchange = ModulePart::Exchange;
  using Pass = plan::ModuleWork::Pass;
  const std::int64_t keys_and_values = checked_product(2, batch.rows(), model.kv_heads * model.head_size());
  ModulePart gather{0, Exchange::gather, keys_and_values, batch.dtype}, none;
  gather.of_context = true;
  ModulePart scatter = gather;
  scatter.exchange = Exchange::scatter;
  scatter.room = checked_product(2, gather.bytes(ranks));  // attention reads what was gathered beside it
  sizes.forward_parts = parts(work.block_flops(Pass::forward).gathered_parts(false), {gather, none});
  sizes.recompute_parts = parts(work.block_flops(Pass::recompute).gathered_parts(false), {gather, none});
  sizes.backward_parts = parts(work.block_flops(Pass::backward).gathered_parts(true), {gather, scatter, none});
}

void set_expert_parts(const config::Model& model, BatchShape batch, const plan::ExpertSplit& experts, std::int64_t rows,
                      const plan::ModuleWork& work, plan::ModuleSizes& sizes) {
  using Exchange = ModulePart::Exchange;
  using Pass = plan::ModuleWork::Pass;
  const std::int64_t to_each = ceil_div(experts.sent_rows(model, rows), experts.ranks);
  const ModulePart dispatch{0, Exchange::dispatch, to_each * model.width, batch.dtype},
      combine{0, Exchange::combine, dispatch.count, batch.dtype}, none;
  const auto of_pass = [&](Pass pass) {
    const bool back = pass == Pass::backward;
    std::vector<ModulePart> all = parts(work.block_flops(pass).expert_parts(back), {dispatch, combine, none});
    if (experts.told && !back) all.front().told = model.experts / experts.ranks;
    if (pass == Pass::recompute && !experts.repeats) {
      for (ModulePart& part : all) part.exchange = Exchange::none, part.count = 0;
    }
    return all;
  };
  sizes.forward_parts = of_pass(Pass::forward);
  sizes.recompute_parts = of_pass(Pass::recompute);
  sizes.backward_parts = of_pass(Pass::backward);
}

}  // namespace fsdpbench::model
