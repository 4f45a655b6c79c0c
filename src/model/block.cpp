#include "model/block.h"

#include "model/arena.h"

namespace fsdpbench::model {
namespace {

enum Parameter : std::size_t { kNorm1, kQuery, kKey, kValue, kOutput, kNorm2, kGate, kUp, kDown };

}  // namespace

Block::Block(const config::Model& model, BatchShape batch, TensorSplit split)
    : model_(model), batch_(batch), split_(split), stream_(model, batch, split) {
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
  s.h = arena.take(stream_.bytes());
  s.gate = arena.take(expand_.output_bytes());
  s.up = arena.take(expand_.output_bytes());
  s.rstd1 = arena.take_array<float>(stream_.rows);
  s.rstd2 = arena.take_array<float>(stream_.rows);
  s.log_sum_exp = arena.take_array<float>(batch_.rows() * model_.heads);
  s.bytes = arena.bytes();
  return s;
}

Block::ForwardWorkspace Block::carve_forward(std::byte* memory) const {
  Arena arena(memory);
  ForwardWorkspace w{};
  if (!split_.tokens) w.normed = arena.take(query_.input_bytes());
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
  if (!split_.tokens) w.normed = arena.take(query_.input_bytes());
  if (split_.ranks == 1) w.d_normed = arena.take(query_.input_bytes());
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
  sizes.output_bytes = stream_.bytes();
  sizes.saved_bytes = carve_saved(nullptr).bytes;
  sizes.forward_workspace_bytes = carve_forward(nullptr).bytes;
  sizes.backward_workspace_bytes = carve_backward(nullptr).bytes;
  sizes.forward_flops = products + attention;
  sizes.recompute_flops = sizes.forward_flops - contract_.flops();
  sizes.backward_flops = 2 * products + 2.5 * attention;
  if (split_.ranks > 1) {
    const double projections = query_.flops() + 2 * key_.flops(), output = output_.flops(),
                 expand = 2 * expand_.flops();
    set_block_parts(model_, batch_, split_, {projections, attention + output, expand, contract_.flops()},
                    {2 * projections, 2.5 * attention + 2 * output, 2 * expand, 2 * contract_.flops()}, sizes);
  }
  return sizes;
}

void Block::norm(backend::Kernels& kernels, const std::byte* x, const std::byte* weight, std::byte* y,
                 float* rstd) const {
  kernels.rms_norm(x, weight, y, rstd, stream_.rows, model_.width, static_cast<float>(model_.norm_epsilon),
                   batch_.dtype);
}

void Block::rotate(backend::Kernels& kernels, std::byte* q, std::byte* k, bool inverse) const {
  kernels.rotary(attention_, q, k, static_cast<float>(model_.rope_theta), inverse);
}

void Block::forward(backend::Kernels& kernels, const ModuleCall& call) const {
  const Saved saved = carve_saved(call.saved);
  const ForwardWorkspace work = carve_forward(call.workspace);
  if (split_.tokens) return forward_by_tokens(kernels, call, saved, work);
  const bool whole = split_.ranks == 1;  // the products add the residuals
  if (call.runs(0)) {
    norm(kernels, call.input, call.parameters[kNorm1], work.normed, saved.rstd1);
    attention(kernels, call, saved, work, work.normed, whole ? saved.h : call.exchange, whole ? call.input : nullptr);
  }
  if (call.runs(1)) {
    if (!whole) kernels.add(call.exchange, call.input, saved.h, stream_.count(), batch_.dtype);
    norm(kernels, saved.h, call.parameters[kNorm2], work.normed, saved.rstd2);
    feed_forward(kernels, call, saved, work, work.normed, call.output, whole ? saved.h : nullptr);
  }
  if (!whole && call.runs(2) && call.output != nullptr) {
    kernels.add(call.output, saved.h, call.output, stream_.count(), batch_.dtype);
  }
}

/// See [Note: parts by tokens] in model.h.
void Block::forward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                              const ForwardWorkspace& work) const {
  std::byte* const own = stream_.in_exchange(call);
  switch (call.part) {
    case 0: return norm(kernels, call.input, call.parameters[kNorm1], own, saved.rstd1);
    case 1: return attention(kernels, call, saved, work, call.exchange, call.exchange, nullptr);
    case 2:
      kernels.add(own, call.input, saved.h, stream_.count(), batch_.dtype);
      return norm(kernels, saved.h, call.parameters[kNorm2], own, saved.rstd2);
    case 3: return feed_forward(kernels, call, saved, work, call.exchange, call.exchange, nullptr);
    default: return kernels.add(own, saved.h, call.output, stream_.count(), batch_.dtype);
  }
}

/// `out` may be `normed`.
void Block::attention(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                      const ForwardWorkspace& work, const std::byte* normed, std::byte* out,
                      const std::byte* residual) const {
  const auto& p = call.parameters;
  query_.forward(kernels, normed, p[kQuery], saved.q);
  key_.forward(kernels, normed, p[kKey], saved.k);
  key_.forward(kernels, normed, p[kValue], saved.v);
  rotate(kernels, saved.q, saved.k, false);
  kernels.attention(attention_, saved.q, saved.k, saved.v, saved.attended, saved.log_sum_exp, work.scratch);
  output_.forward(kernels, saved.attended, p[kOutput], out, residual);
}

/// `out` may be `normed`.
void Block::feed_forward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                         const ForwardWorkspace& work, const std::byte* normed, std::byte* out,
                         const std::byte* residual) const {
  const auto& p = call.parameters;
  expand_.forward(kernels, normed, p[kGate], saved.gate);
  expand_.forward(kernels, normed, p[kUp], saved.up);
  if (call.output == nullptr) return;  // recomputation: only what backward needs
  kernels.swiglu(saved.gate, saved.up, work.product, batch_.rows() * model_.ffn_width, batch_.dtype);
  contract_.forward(kernels, work.product, p[kDown], out, residual);
}

void Block::backward(backend::Kernels& kernels, const ModuleCall& call) const {
  const Saved saved = carve_saved(call.saved);
  const BackwardWorkspace work = carve_backward(call.workspace);
  if (split_.tokens) return backward_by_tokens(kernels, call, saved, work);
  std::byte* const d_normed = split_.ranks > 1 ? call.exchange : work.d_normed;
  if (call.runs(0)) {
    contraction_backward(kernels, call, saved, work, call.d_stream);
    norm(kernels, saved.h, call.parameters[kNorm2], work.normed, saved.rstd2);
    expansion_backward(kernels, call, work, work.normed, d_normed);
  }
  if (call.runs(1)) {
    norm_backward(kernels, call, kNorm2, d_normed, saved.h, saved.rstd2);
    attention_backward(kernels, call, saved, work, call.d_stream);
    norm(kernels, call.input, call.parameters[kNorm1], work.normed, saved.rstd1);
    projections_backward(kernels, call, work, work.normed, d_normed);
  }
  if (call.runs(2)) norm_backward(kernels, call, kNorm1, d_normed, call.input, saved.rstd1);
}

/// See [Note: parts by tokens] in model.h.
void Block::backward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                               const BackwardWorkspace& work) const {
  std::byte* const own = stream_.in_exchange(call);
  const std::int64_t of_norm = model_.width * size_of(batch_.dtype);
  const auto copy_gradient = [&](const std::byte* from, std::byte* to) {
    kernels.cast(from, batch_.dtype, to, batch_.dtype, model_.width, 1.0F);
  };
  switch (call.part) {
    case 0: return stream_.copy(kernels, call.d_stream, own);
    case 1:
      contraction_backward(kernels, call, saved, work, call.exchange);
      return norm(kernels, saved.h, call.parameters[kNorm2], own, saved.rstd2);
    case 2: return expansion_backward(kernels, call, work, call.exchange, call.exchange);
    case 3:
      norm_backward(kernels, call, kNorm2, own, saved.h, saved.rstd2);
      return stream_.copy(kernels, call.d_stream, own);
    case 4:
      attention_backward(kernels, call, saved, work, call.exchange);
      return norm(kernels, call.input, call.parameters[kNorm1], own, saved.rstd1);
    case 5: return projections_backward(kernels, call, work, call.exchange, call.exchange);
    case 6:
      norm_backward(kernels, call, kNorm1, own, call.input, saved.rstd1);
      copy_gradient(call.gradients[kNorm1], call.exchange);
      return copy_gradient(call.gradients[kNorm2], call.exchange + of_norm);
    default:
      copy_gradient(call.exchange, call.gradients[kNorm1]);
      return copy_gradient(call.exchange + of_norm, call.gradients[kNorm2]);
  }
}

/// d_stream: adds what comes through a norm.
void Block::norm_backward(backend::Kernels& kernels, const ModuleCall& call, std::size_t weight,
                          const std::byte* d_normed, const std::byte* x, const float* rstd) const {
  kernels.rms_norm_backward(d_normed, x, call.parameters[weight], rstd, call.d_stream, call.gradients[weight],
                            stream_.rows, model_.width, batch_.dtype);
}

/// From d_y to the gradients of gate and up.
void Block::contraction_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                                 const BackwardWorkspace& work, const std::byte* d_y) const {
  const std::int64_t count = batch_.rows() * model_.ffn_width;
  kernels.swiglu(saved.gate, saved.up, work.product, count, batch_.dtype);
  contract_.weight_gradient(kernels, d_y, work.product, call.gradients[kDown]);
  contract_.input_gradient(kernels, d_y, call.parameters[kDown], work.d_product);
  kernels.swiglu_backward(work.d_product, saved.gate, saved.up, work.d_gate, work.d_up, count, batch_.dtype);
}

/// From those to the gradient of the norm before, which may take its place.
void Block::expansion_backward(backend::Kernels& kernels, const ModuleCall& call, const BackwardWorkspace& work,
                               const std::byte* normed, std::byte* d_normed) const {
  expand_.weight_gradient(kernels, work.d_gate, normed, call.gradients[kGate]);
  expand_.weight_gradient(kernels, work.d_up, normed, call.gradients[kUp]);
  expand_.input_gradient(kernels, work.d_gate, call.parameters[kGate], d_normed);
  expand_.input_gradient(kernels, work.d_up, call.parameters[kUp], d_normed, true);
}

/// From d_h to the gradients of queries, keys and values.
void Block::attention_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                               const BackwardWorkspace& work, const std::byte* d_h) const {
  output_.weight_gradient(kernels, d_h, saved.attended, call.gradients[kOutput]);
  output_.input_gradient(kernels, d_h, call.parameters[kOutput], work.d_attended);
  kernels.attention_backward(attention_, work.d_attended, saved.q, saved.k, saved.v, saved.attended, saved.log_sum_exp,
                             work.d_q, work.d_k, work.d_v, work.scratch);
  rotate(kernels, work.d_q, work.d_k, true);
}

/// From those to the gradient of the norm before, which may take its place.
void Block::projections_backward(backend::Kernels& kernels, const ModuleCall& call, const BackwardWorkspace& work,
                                 const std::byte* normed, std::byte* d_normed) const {
  const auto& p = call.parameters;
  query_.weight_gradient(kernels, work.d_q, normed, call.gradients[kQuery]);
  key_.weight_gradient(kernels, work.d_k, normed, call.gradients[kKey]);
  key_.weight_gradient(kernels, work.d_v, normed, call.gradients[kValue]);
  query_.input_gradient(kernels, work.d_q, p[kQuery], d_normed);
  key_.input_gradient(kernels, work.d_k, p[kKey], d_normed, true);
  key_.input_gradient(kernels, work.d_v, p[kValue], d_normed, true);
}

}  // namespace fsdpbench::model
