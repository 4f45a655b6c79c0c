#include "model/outline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "base/error.h"
#include "model/linear_map.h"
#include "model/model.h"

namespace fsdpbench::model {
namespace {

[[noreturn]] void refuse(const config::Model& model) {
  throw ConfigError(fmt::format("There are no kernels for what {} asks for: such a model is simulated, not trained.",
                                key_without_kernels(model)));
}

}  // namespace

std::string_view key_without_kernels(const config::Model& model) {
  if (model.kind != config::ModelKind::decoder) return {};
  if (model.feed_forward != config::FeedForward::gated) return "model.feed_forward";
  if (model.norm != config::Norm::rms) return "model.norm";
  if (model.bias) return "model.bias";
  if (model.learned_positions > 0) return "model.learned_positions";
  if (model.head_dim > 0 && model.head_dim * model.heads != model.width) return "model.head_dim";
  if (model.qk_norm) return "model.qk_norm";
  if (model.attention_sinks) return "model.attention_sinks";
  if (model.attention_window > 0) return "model.attention_window";
  if (model.experts > 0) return "model.experts";
  if (model.fused_projections) return "model.fused_projections";
  if (model.freezes()) return model.lora_rank > 0 ? "model.lora_rank" : "model.trainable";
  return {};
}

std::string_view key_without_kernels(const config::RunConfig& config) {
  if (const std::string_view key = key_without_kernels(config.model); !key.empty()) return key;
  if (config.mesh.context > 1) return "mesh.context";
  if (config.fsdp.activation_checkpointing && config.fsdp.recompute_share < 1) return "fsdp.recompute_share";
  if (config.fsdp.activation_checkpointing && config.fsdp.checkpoint_keeps != config::CheckpointKeeps::nothing) {
    return "fsdp.checkpoint_keeps";
  }
  if (config.fsdp.fp8_products) return "fsdp.fp8_products";
  if (config.fsdp.state_dtype != DType::f32) return "fsdp.state_dtype";
  return {};
}

std::vector<plan::ModuleSizes> Outline::sizes() const {
  std::vector<plan::ModuleSizes> all{embedding()};
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) all.push_back(block(layer));
  all.push_back(head());
  const std::vector<plan::ModuleWork> work = plan::module_work(model_, batch_.batch, batch_.seq_len * context_, 1,
                                                               experts_, config::CheckpointKeeps::nothing, context_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].forward_flops = work[i].forward_flops();
    all[i].backward_flops = work[i].backward_flops();
    if (work[i].kind == plan::ModuleKind::block) all[i].recompute_flops = work[i].recompute_flops();
    if (split_.ranks > 1) set_parts(work[i], all[i]);
    if (work[i].by_context) set_context_parts(model_, batch_, context_, work[i], all[i]);
    if (!work[i].by_experts) continue;
    const std::int64_t rows = routed(model_.width) / (model_.width * size_of(batch_.dtype));
    set_expert_parts(model_, batch_, experts_, rows, work[i], all[i]);
  }
  return all;
}

void Outline::set_parts(const plan::ModuleWork& work, plan::ModuleSizes& sizes) const {
  using Pass = plan::ModuleWork::Pass;
  switch (work.kind) {
    case plan::ModuleKind::embedding: return set_embedding_parts(model_, batch_, split_, sizes);
    case plan::ModuleKind::head: return set_head_parts(model_, batch_, split_, sizes);
    default: break;
  }
  set_block_parts(model_, batch_, split_, work.block_flops(Pass::forward), work.block_flops(Pass::backward), sizes);
}

std::int64_t Outline::routed(std::int64_t features) const {
  const std::int64_t visits = std::max<std::int64_t>(model_.active_experts, 1);
  if (experts_.ranks == 1) return tensor(visits * features);
  return checked_product(experts_.arrived_rows(batch_.rows() * visits), features, size_of(batch_.dtype));
}

plan::ModuleSizes Outline::embedding() const {
  plan::ModuleSizes sizes;
  sizes.batch_input_bytes = batch_.rows() * size_of(DType::i32);
  sizes.batch_target_bytes = batch_.rows() * size_of(DType::i32);
  sizes.output_bytes = stream_.bytes();
  return sizes;
}

plan::ModuleSizes Outline::block(std::int64_t layer) const {
  const std::int64_t queries = model_.heads * model_.head_size(), keys = model_.kv_heads * model_.head_size();
  const std::int64_t visits = std::max<std::int64_t>(model_.active_experts, 1);
  const bool gated = model_.feed_forward == config::FeedForward::gated;
  const bool routed = model_.experts > 0, joined = model_.fused_projections;
  const bool apart = experts_.ranks > 1;
  const std::int64_t inner = this->routed(model_.ffn_width), routed_rows = routed ? tensor(visits * model_.width) : 0,
                     rows_here = routed ? this->routed(model_.width) : 0;  // that come to this rank's experts
  const backend::AttentionShape attention{batch_.batch,    batch_.seq_len,     model_.heads,
                                          model_.kv_heads, model_.head_size(), batch_.dtype};
  plan::ModuleSizes sizes;
  sizes.output_bytes = stream_.bytes();

  // Each map's output, or those of joined maps in one tensor; in backward their gradients.
  const auto take_projections = [&](Arena& arena) {
    if (joined) return void(arena.take(tensor(queries + 2 * keys)));
    for (const std::int64_t features : {queries, keys, keys}) arena.take(tensor(features));
  };
  const auto take_expanded = [&](Arena& arena) {
    if (gated && joined) return void(arena.take(this->routed(2 * model_.ffn_width)));
    for (int i = 0; i < (gated ? 2 : 1); ++i) arena.take(inner);
  };
  Arena saved;
  take_projections(saved);
  saved.take(tensor(queries));
  saved.take(stream_.bytes());
  saved.take(norm_statistics());
  saved.take(norm_statistics());
  saved.take(statistics(model_.heads));
  if (model_.qk_norm) {  // queries and keys before their norms
    saved.take(tensor(queries));
    saved.take(tensor(keys));
    saved.take(statistics(model_.heads + model_.kv_heads));
  }
  const std::int64_t rank = model_.adapter_rank(layer);  // between an adapter's two products
  const auto take_adapters = [&](int count) {
    for (int i = 0; i < count && rank > 0; ++i) saved.take(tensor(rank));
  };
  take_adapters((joined ? 1 : 3) + 1);
  if (keeps_.autograd()) {  // see [Note: what autograd keeps]
    const bool written_out = keeps_.framework == config::Simulate::Framework::transformers && !keeps_.compiled &&
                             model_.norm == config::Norm::rms;
    for (int norm = 0; norm < 2; ++norm) {
      saved.take(tensor(model_.width));
      for (int i = 0; i < 2 && written_out; ++i) saved.take(stream_.bytes());
    }
    for (int i = 0; i < 3 && written_out && model_.qk_norm; ++i) saved.take(tensor(queries + keys));
  }
  const std::int64_t attended = saved.mark();
  take_expanded(saved);
  take_adapters((gated && !joined ? 2 : 1) + 1);
  if (routed) {  // the router's logits, whom each token visits where with which weight, and what it got there
    saved.take(tensor(model_.experts));
    for (int i = 0; i < 3; ++i) saved.take(statistics(visits));
    saved.take_array<std::int32_t>(model_.experts + 1);
    saved.take(routed_rows);
    if (apart) saved.take(rows_here);  // what came from other ranks: the experts' input
  }
  // The shared expert's gate and up, or their gradients.
  const std::int64_t shared_width = model_.shared_width();
  const auto take_shared = [&](Arena& arena) {
    if (gated && joined) return void(arena.take(tensor(2 * shared_width)));
    for (int i = 0; i < (gated ? 2 : 1); ++i) arena.take(tensor(shared_width));
  };
  if (shared_width > 0) take_shared(saved);
  if (keeps_.autograd()) {
    const bool eager = !keeps_.compiled;
    // The products' inputs: silu(gate), its product with up or the activation, and the tokens in the experts' order.
    for (int i = 0; i < (gated && eager ? 2 : 1); ++i) {
      saved.take(inner);
      if (shared_width > 0) saved.take(tensor(shared_width));
    }
    if (routed) saved.take(routed_rows);
  }
  sizes.saved_bytes = saved.bytes();
  sizes.feed_forward_saved_bytes = saved.bytes() - attended;

  // [Note: what autograd keeps]
  // This engine recomputes in backward what is cheap: norms from their statistics, the activation from gate and up.
  // Autograd keeps each operand of a product: a fused norm's output (written out, its fp32 copy too, twice the bytes),
  // the gate's activation, and its product with up. torch.compile's partitioner leaves out the gate's activation.
  // tests/peer/memory.py records it.

  Arena forward;
  if (!split_.tokens) forward.take(tensor(model_.width));  // else it is exchanged
  std::int64_t shared = forward.mark();
  forward.take(backend::attention_scratch_bytes(attention));
  forward.rewind(shared);
  forward.take(inner);
  if (routed) forward.take(routed_rows);  // tokens in the order of their experts
  if (apart) forward.take(rows_here);     // and what the experts make of those that came
  forward.rewind(shared);
  if (shared_width > 0) forward.take(tensor(shared_width));
  sizes.forward_workspace_bytes = forward.bytes();

  Arena backward;
  if (!split_.tokens) backward.take(tensor(model_.width));
  if (split_.ranks == 1) backward.take(tensor(model_.width));
  for (int i = 0; i < (joined ? 1 : 3) && rank > 0; ++i) backward.take(tensor(rank));
  shared = backward.mark();
  if (routed) backward.take(statistics(visits));
  const std::int64_t behind_weights = backward.mark();
  if (shared_width > 0) {
    take_shared(backward);
    backward.take(tensor(shared_width));
    backward.rewind(behind_weights);
  }
  take_expanded(backward);
  backward.take(inner);
  if (routed) {
    backward.take(routed_rows);
    backward.take(rows_here);
    backward.take(tensor(model_.experts));
  }
  backward.rewind(shared);
  backward.take(tensor(queries));
  take_projections(backward);
  backward.take(backend::attention_backward_scratch_bytes(attention));
  sizes.backward_workspace_bytes = backward.bytes();
  return sizes;
}

// [Note: eager loss]
// F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1)) of PyTorch, without torch.compile, is log_softmax
// and nll_loss. In forward the logits, their fp32 copy and the log_softmax are there at once; the last is saved for
// both backwards, the others are freed when the loss is returned (the training loop holds no logits: `del pred` of
// torchtitan; one that does holds its model's output until the step is over). In backward nll_loss fills a gradient of
// the log_softmax with zeros, and log_softmax makes the fp32 gradient of the logits of it: three fp32 tensors of all
// logits. Both others are freed before the gradient is cast to the compute dtype and the product's backward runs. fp32
// logits are not copied. A loss by chunks runs the head's and its own backward in forward and keeps the fp32 gradient
// of the hidden states. tests/peer/eager_loss.py records it.
plan::ModuleSizes Outline::head() const {
  using Loss = config::Simulate::Loss;
  plan::ModuleSizes sizes;
  Arena saved, forward, backward;
  const bool fp32_output = keeps_.loss == Loss::referenced_fp32;
  const bool eager = keeps_.loss == Loss::eager || keeps_.loss == Loss::referenced || fp32_output;
  const std::int64_t logits = tensor(ceil_div(model_.vocab, split_.ranks)),
                     in_fp32 = logits / size_of(batch_.dtype) * size_of(DType::f32);
  if (keeps_.loss == Loss::fused) saved.take(tensor(logits_stride(model_.vocab, batch_.dtype, split_.ranks)));
  if (eager) saved.take(in_fp32);
  if (keeps_.loss == Loss::referenced) saved.take(logits);
  if (fp32_output) saved.take(in_fp32);
  if (keeps_.loss == Loss::chunked) saved.take(checked_product(batch_.rows(), model_.width, size_of(DType::f32)));
  saved.take(norm_statistics());
  if (keeps_.autograd()) saved.take(tensor(model_.width));  // the norm's output
  sizes.saved_bytes = saved.bytes();
  if (!split_.tokens) forward.take(tensor(model_.width));
  if (split_.ranks == 1) backward.take(checked_sum(forward.bytes(), tensor(model_.width)));
  if (eager && keeps_.loss != Loss::referenced) forward.take(logits);
  if (eager && batch_.dtype != DType::f32 && !fp32_output) forward.take(in_fp32);
  constexpr int kChunks = 8;
  if (keeps_.loss == Loss::chunked) forward.take(ceil_div(3 * in_fp32, kChunks));
  sizes.forward_workspace_bytes = forward.bytes();
  // Beside what is saved: two gradients. Later the saved room and theirs have the cast gradient and the norm's input.
  sizes.backward_workspace_bytes =
      std::max({split_.ranks == 1 ? backward.bytes() : forward.bytes(), eager ? 2 * in_fp32 : 0});
  return sizes;
}

void Outline::forward(int, backend::Kernels&, const ModuleCall&) const { refuse(model_); }
void Outline::backward(int, backend::Kernels&, const ModuleCall&) const { refuse(model_); }

}  // namespace fsdpbench::model
