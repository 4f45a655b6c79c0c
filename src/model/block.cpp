#include "model/block.h"

#include "model/arena.h"
#include "model/parts.h"

namespace fsdpbench::model {
namespace {

enum Parameter : std::size_t { kNorm1, kQuery, kKey, kValue, kOutput, kNorm2, kGate, kUp, kDown };

}  // namespace

Block::Block(const config::Model& model, BatchShape batch, int tensor) : model_(model), batch_(batch), tensor_(tensor) {
  const std::int64_t rows = batch.rows();
  const std::int64_t head_dim = model.head_size();
  attention_ = {batch.batch, batch.seq_len, model.heads, model.kv_heads, head_dim, batch.dtype};
  query_ = {rows, model.width, model.heads * head_dim, batch.dtype};
  key_ = {rows, model.width, model.kv_heads * head_dim, batch.dtype};
  output_ = {rows, model.heads * head_dim, model.width, batch.dtype};
  expand_ = {rows, model.width, model.ffn_width, batch.dtype};
  contract_ = {rows, model.ffn_width, model.width, batch.dtype};
}

Block::Saved Block::carve_saved(std::byte* memory) const {
  Arena arena(memory);
  Saved s{};
  s.q = arena.take(query_.output_bytes());
  s.k = arena.take(key_.output_bytes());
  s.v = arena.take(key_.output_bytes());
  s.attended = arena.take(query_.output_bytes());
  s.h = arena.take(output_.output_bytes());
  s.gate = arena.take(expand_.output_bytes());
  s.up = arena.take(expand_.output_bytes());
  s.rstd1 = arena.take_array<float>(batch_.rows());
  s.rstd2 = arena.take_array<float>(batch_.rows());
  s.log_sum_exp = arena.take_array<float>(batch_.rows() * model_.heads);
  s.bytes = arena.bytes();
  return s;
}

Block::ForwardWorkspace Block::carve_forward(std::byte* memory) const {
  Arena arena(memory);
  ForwardWorkspace w{};
  w.normed = arena.take(query_.input_bytes());
  const std::int64_t shared = arena.mark();
  w.scratch = arena.take(backend::attention_scratch_bytes(attention_));
  arena.rewind(shared);
  w.product = arena.take(contract_.input_bytes());
  w.bytes = arena.bytes();
  return w;
}

Block::BackwardWorkspace Block::carve_backward(std::byte* memory) const {
  Arena arena(memory);
  BackwardWorkspace w{};
  w.normed = arena.take(query_.input_bytes());
  if (tensor_ == 1) w.d_normed = arena.take(query_.input_bytes());  // else it is exchanged
  const std::int64_t shared = arena.mark();
  w.product = arena.take(contract_.input_bytes());
  w.d_gate = w.product;
  w.d_product = arena.take(contract_.input_bytes());
  w.d_up = arena.take(expand_.output_bytes());
  arena.rewind(shared);
  w.d_attended = arena.take(output_.input_bytes());
  w.d_q = arena.take(query_.output_bytes());
  w.d_k = arena.take(key_.output_bytes());
  w.d_v = arena.take(key_.output_bytes());
  w.scratch = arena.take(backend::attention_backward_scratch_bytes(attention_));
  w.bytes = arena.bytes();
  return w;
}

plan::ModuleSizes Block::sizes() const {
  const double products = query_.flops() + 2 * key_.flops() + output_.flops() + 2 * expand_.flops() + contract_.flops();
  // Half of the two products of [seq, seq] scores; the backward has five of them.
  const double attention = 2.0 * static_cast<double>(batch_.rows()) * static_cast<double>(batch_.seq_len) *
                           static_cast<double>(attention_.heads * attention_.head_dim);
  plan::ModuleSizes sizes;
  sizes.output_bytes = output_.output_bytes();
  sizes.saved_bytes = carve_saved(nullptr).bytes;
  sizes.forward_workspace_bytes = carve_forward(nullptr).bytes;
  sizes.backward_workspace_bytes = carve_backward(nullptr).bytes;
  sizes.forward_flops = products + attention;
  sizes.recompute_flops = sizes.forward_flops - contract_.flops();
  sizes.backward_flops = 2 * products + 2.5 * attention;
  if (tensor_ > 1) {
    const double projections = query_.flops() + 2 * key_.flops() + output_.flops(), rest = products - projections;
    set_block_parts(model_, batch_, {projections + attention, rest, contract_.flops()},
                    {2 * projections + 2.5 * attention, 2 * rest, 0}, sizes);
  }
  return sizes;
}

void Block::norm(backend::Kernels& kernels, const std::byte* x, const std::byte* weight, std::byte* y,
                 float* rstd) const {
  kernels.rms_norm(x, weight, y, rstd, batch_.rows(), model_.width, static_cast<float>(model_.norm_epsilon),
                   batch_.dtype);
}

void Block::rotate(backend::Kernels& kernels, std::byte* q, std::byte* k, bool inverse) const {
  kernels.rotary(attention_, q, k, static_cast<float>(model_.rope_theta), inverse);
}

void Block::forward(backend::Kernels& kernels, const ModuleCall& call) const {
  const Saved saved = carve_saved(call.saved);
  const ForwardWorkspace work = carve_forward(call.workspace);
  if (call.runs(0)) attention_forward(kernels, call, saved, work);
  if (call.runs(1)) feed_forward(kernels, call, saved, work);
  if (tensor_ > 1 && call.runs(2) && call.output != nullptr) {  // else the products have added the residuals
    kernels.add(call.output, saved.h, call.output, batch_.rows() * model_.width, batch_.dtype);
  }
}

void Block::attention_forward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                              const ForwardWorkspace& work) const {
  const auto& p = call.parameters;
  norm(kernels, call.input, p[kNorm1], work.normed, saved.rstd1);
  query_.forward(kernels, work.normed, p[kQuery], saved.q);
  key_.forward(kernels, work.normed, p[kKey], saved.k);
  key_.forward(kernels, work.normed, p[kValue], saved.v);
  rotate(kernels, saved.q, saved.k, false);
  kernels.attention(attention_, saved.q, saved.k, saved.v, saved.attended, saved.log_sum_exp, work.scratch);
  if (tensor_ > 1) return output_.forward(kernels, saved.attended, p[kOutput], call.exchange);
  output_.forward(kernels, saved.attended, p[kOutput], saved.h, call.input);
}

void Block::feed_forward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                         const ForwardWorkspace& work) const {
  const auto& p = call.parameters;
  if (tensor_ > 1) kernels.add(call.exchange, call.input, saved.h, batch_.rows() * model_.width, batch_.dtype);
  norm(kernels, saved.h, p[kNorm2], work.normed, saved.rstd2);
  expand_.forward(kernels, work.normed, p[kGate], saved.gate);
  expand_.forward(kernels, work.normed, p[kUp], saved.up);
  if (call.output == nullptr) return;  // recomputation: only what backward needs
  kernels.swiglu(saved.gate, saved.up, work.product, batch_.rows() * model_.ffn_width, batch_.dtype);
  contract_.forward(kernels, work.product, p[kDown], call.output, tensor_ > 1 ? nullptr : saved.h);
}

void Block::backward(backend::Kernels& kernels, const ModuleCall& call) const {
  const Saved saved = carve_saved(call.saved);
  BackwardWorkspace work = carve_backward(call.workspace);
  if (tensor_ > 1) work.d_normed = call.exchange;
  if (call.runs(0)) feed_forward_backward(kernels, call, saved, work);
  if (call.runs(1)) {
    norm_backward(kernels, call, kNorm2, work.d_normed, saved.h, saved.rstd2);
    attention_backward(kernels, call, saved, work);
  }
  if (call.runs(2)) norm_backward(kernels, call, kNorm1, work.d_normed, call.input, saved.rstd1);
}

/// d_stream: adds what comes through a norm.
void Block::norm_backward(backend::Kernels& kernels, const ModuleCall& call, std::size_t weight,
                          const std::byte* d_normed, const std::byte* x, const float* rstd) const {
  kernels.rms_norm_backward(d_normed, x, call.parameters[weight], rstd, call.d_stream, call.gradients[weight],
                            batch_.rows(), model_.width, batch_.dtype);
}

/// From d_y to the gradient of the norm before.
void Block::feed_forward_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                                  const BackwardWorkspace& work) const {
  const auto& p = call.parameters;
  const auto& d = call.gradients;
  const std::int64_t count = batch_.rows() * model_.ffn_width;

  kernels.swiglu(saved.gate, saved.up, work.product, count, batch_.dtype);
  contract_.weight_gradient(kernels, call.d_stream, work.product, d[kDown]);
  contract_.input_gradient(kernels, call.d_stream, p[kDown], work.d_product);
  kernels.swiglu_backward(work.d_product, saved.gate, saved.up, work.d_gate, work.d_up, count, batch_.dtype);

  norm(kernels, saved.h, p[kNorm2], work.normed, saved.rstd2);
  expand_.weight_gradient(kernels, work.d_gate, work.normed, d[kGate]);
  expand_.weight_gradient(kernels, work.d_up, work.normed, d[kUp]);
  expand_.input_gradient(kernels, work.d_gate, p[kGate], work.d_normed);
  expand_.input_gradient(kernels, work.d_up, p[kUp], work.d_normed, true);
}

/// From d_h to the gradient of the norm before.
void Block::attention_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                               const BackwardWorkspace& work) const {
  const auto& p = call.parameters;
  const auto& d = call.gradients;

  output_.weight_gradient(kernels, call.d_stream, saved.attended, d[kOutput]);
  output_.input_gradient(kernels, call.d_stream, p[kOutput], work.d_attended);
  kernels.attention_backward(attention_, work.d_attended, saved.q, saved.k, saved.v, saved.attended, saved.log_sum_exp,
                             work.d_q, work.d_k, work.d_v, work.scratch);
  rotate(kernels, work.d_q, work.d_k, true);

  norm(kernels, call.input, p[kNorm1], work.normed, saved.rstd1);
  query_.weight_gradient(kernels, work.d_q, work.normed, d[kQuery]);
  key_.weight_gradient(kernels, work.d_k, work.normed, d[kKey]);
  key_.weight_gradient(kernels, work.d_v, work.normed, d[kValue]);
  query_.input_gradient(kernels, work.d_q, p[kQuery], work.d_normed);
  key_.input_gradient(kernels, work.d_k, p[kKey], work.d_normed, true);
  key_.input_gradient(kernels, work.d_v, p[kValue], work.d_normed, true);
}

}  // namespace fsdpbench::model
