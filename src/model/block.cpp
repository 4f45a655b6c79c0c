#include "model/block.h"

#include "backend/kernels.h"
#include "model/model.h"

namespace fsdpbench::model {

Block::Block(const config::Model& model, BatchShape batch, TensorSplit split)
    : model_(model), batch_(batch), split_(split), stream_(model, batch, split) {
  const std::int64_t rows = batch.rows();
  const std::int64_t head_dim = model.head_size(), queries = model.heads * head_dim, keys = model.kv_heads * head_dim;
  const DType dtype = batch.dtype, gradients = batch.gradient_dtype;
  qkv_ = {rows, model.width, {queries, keys, keys}, dtype, gradients};
  gate_up_ = {rows, model.width, {model.ffn_width, model.ffn_width}, dtype, gradients};
  output_ = {rows, queries, model.width, dtype, gradients};
  contract_ = {rows, model.ffn_width, model.width, dtype, gradients};
  attention_ = {batch.batch, batch.seq_len, model.heads, model.kv_heads, head_dim, dtype};
  at_.qkv = at_.norm1 + 1;
  at_.output = at_.qkv + qkv_.products().size();
  at_.norm2 = at_.output + 1;
  at_.gate_up = at_.norm2 + 1;
  at_.down = at_.gate_up + gate_up_.products().size();
}

Block::Saved Block::carve_saved(std::byte* memory) const {
  Arena arena(memory);
  Saved s{};
  s.qkv = qkv_.take(arena);
  s.attended = arena.take(output_.input_bytes());
  s.h = arena.take(stream_.bytes());
  s.gate_up = gate_up_.take(arena);
  s.rstd1 = arena.take_array<float>(stream_.rows);
  s.rstd2 = arena.take_array<float>(stream_.rows);
  s.log_sum_exp = arena.take_array<float>(batch_.rows() * model_.heads);
  s.bytes = arena.bytes();
  return s;
}

Block::ForwardWorkspace Block::carve_forward(std::byte* memory) const {
  Arena arena(memory);
  ForwardWorkspace w{};
  if (!split_.tokens) w.normed = arena.take(qkv_.input_bytes());
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
  if (!split_.tokens) w.normed = arena.take(qkv_.input_bytes());
  if (split_.ranks == 1) w.d_normed = arena.take(qkv_.input_bytes());
  const std::int64_t shared = arena.mark();
  w.d_gate_up = gate_up_.take(arena);
  w.d_product = arena.take(contract_.input_bytes());
  arena.rewind(shared);
  w.d_attended = arena.take(output_.input_bytes());
  w.d_qkv = qkv_.take(arena);
  w.scratch = arena.take(backend::attention_backward_scratch_bytes(attention_));
  w.bytes = arena.bytes();
  return w;
}

plan::ModuleSizes Block::carved() const {
  plan::ModuleSizes sizes;
  sizes.saved_bytes = carve_saved(nullptr).bytes;
  sizes.forward_workspace_bytes = carve_forward(nullptr).bytes;
  sizes.backward_workspace_bytes = carve_backward(nullptr).bytes;
  return sizes;
}

void Block::norm(backend::Kernels& kernels, const std::byte* x, const std::byte* weight, std::byte* y,
                 float* rstd) const {
  kernels.rms_norm({.shape = stream_.shape(),
                    .x = x,
                    .weight = weight,
                    .y = y,
                    .rstd = rstd,
                    .epsilon = static_cast<float>(model_.norm_epsilon)});
}

void Block::rotate(backend::Kernels& kernels, const Maps3& qkv, bool inverse) const {
  kernels.rotary(attention_, qkv[0], qkv[1], static_cast<float>(model_.rope_theta), inverse);
}

void Block::forward(backend::Kernels& kernels, const ModuleCall& call) const {
  const Saved saved = carve_saved(call.saved);
  const ForwardWorkspace work = carve_forward(call.workspace);
  if (split_.tokens) return forward_by_tokens(kernels, call, saved, work);
  const bool whole = split_.ranks == 1;  // the products add the residuals
  if (call.runs(0)) {
    norm(kernels, call.input, call.parameters[at_.norm1], work.normed, saved.rstd1);
    attention(kernels, call, saved, work, work.normed, whole ? saved.h : call.exchange, whole ? call.input : nullptr);
  }
  if (call.runs(1)) {
    if (!whole) kernels.add(call.exchange, call.input, saved.h, stream_.count(), batch_.dtype);
    norm(kernels, saved.h, call.parameters[at_.norm2], work.normed, saved.rstd2);
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
    case 0: return norm(kernels, call.input, call.parameters[at_.norm1], own, saved.rstd1);
    case 1: return attention(kernels, call, saved, work, call.exchange, call.exchange, nullptr);
    case 2:
      kernels.add(own, call.input, saved.h, stream_.count(), batch_.dtype);
      return norm(kernels, saved.h, call.parameters[at_.norm2], own, saved.rstd2);
    case 3: return feed_forward(kernels, call, saved, work, call.exchange, call.exchange, nullptr);
    default: return kernels.add(own, saved.h, call.output, stream_.count(), batch_.dtype);
  }
}

/// `out` may be `normed`.
void Block::attention(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                      const ForwardWorkspace& work, const std::byte* normed, std::byte* out,
                      const std::byte* residual) const {
  const auto& p = call.parameters;
  const auto& [q, k, v] = saved.qkv;
  qkv_.forward(kernels, normed, p.subspan(at_.qkv), saved.qkv);
  rotate(kernels, saved.qkv, false);
  kernels.attention({.shape = attention_,
                     .q = q,
                     .k = k,
                     .v = v,
                     .out = saved.attended,
                     .log_sum_exp = saved.log_sum_exp,
                     .scratch = work.scratch});
  output_.forward(kernels, saved.attended, p[at_.output], out, residual);
}

/// `out` may be `normed`.
void Block::feed_forward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                         const ForwardWorkspace& work, const std::byte* normed, std::byte* out,
                         const std::byte* residual) const {
  const auto& p = call.parameters;
  gate_up_.forward(kernels, normed, p.subspan(at_.gate_up), saved.gate_up);
  if (call.output == nullptr) return;  // recomputation: only what backward needs
  kernels.swiglu({.shape = {batch_.rows(), model_.ffn_width, batch_.dtype},
                  .gate = saved.gate_up[0],
                  .up = saved.gate_up[1],
                  .y = work.product});
  contract_.forward(kernels, work.product, p[at_.down], out, residual);
}

void Block::backward(backend::Kernels& kernels, const ModuleCall& call) const {
  const Saved saved = carve_saved(call.saved);
  const BackwardWorkspace work = carve_backward(call.workspace);
  if (split_.tokens) return backward_by_tokens(kernels, call, saved, work);
  if (split_.ranks == 1) return backward_whole(kernels, call, saved, work);
  std::byte* const d_normed = call.exchange;
  if (call.runs(0)) {
    contraction_backward(kernels, call, saved, work, call.d_stream);
    norm(kernels, saved.h, call.parameters[at_.norm2], work.normed, saved.rstd2);
    expansion_backward(kernels, call, work, work.normed, d_normed);
  }
  if (call.runs(1)) {
    norm_backward(kernels, call, at_.norm2, d_normed, saved.h, saved.rstd2);
    attention_backward(kernels, call, saved, work, call.d_stream);
    norm(kernels, call.input, call.parameters[at_.norm1], work.normed, saved.rstd1);
    projections_backward(kernels, call, work, work.normed, d_normed);
  }
  if (call.runs(2)) norm_backward(kernels, call, at_.norm1, d_normed, call.input, saved.rstd1);
}

/// The gradients of norms come before those of the weights behind them: they give what those need, the norms' outputs.
void Block::backward_whole(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                           const BackwardWorkspace& work) const {
  contraction_backward(kernels, call, saved, work, call.d_stream);
  gate_up_.input_gradient(kernels, work.d_gate_up, call.parameters.subspan(at_.gate_up), work.d_normed);
  norm_backward(kernels, call, at_.norm2, work.d_normed, saved.h, saved.rstd2, work.normed);
  gate_up_.weight_gradient(kernels, work.d_gate_up, work.normed, call.gradients.subspan(at_.gate_up));
  attention_backward(kernels, call, saved, work, call.d_stream);
  qkv_.input_gradient(kernels, work.d_qkv, call.parameters.subspan(at_.qkv), work.d_normed);
  norm_backward(kernels, call, at_.norm1, work.d_normed, call.input, saved.rstd1, work.normed);
  qkv_.weight_gradient(kernels, work.d_qkv, work.normed, call.gradients.subspan(at_.qkv));
}

/// See [Note: parts by tokens] in model.h.
void Block::backward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                               const BackwardWorkspace& work) const {
  std::byte* const own = stream_.in_exchange(call);
  const std::int64_t of_norm = model_.width * size_of(batch_.dtype);
  const auto put_gradient = [&](std::size_t norm, std::byte* to) {
    kernels.cast({call.gradients[norm], batch_.gradient_dtype}, {to, batch_.dtype}, model_.width, 1.0F);
  };
  const auto take_gradient = [&](const std::byte* from, std::size_t norm) {
    kernels.cast({from, batch_.dtype}, {call.gradients[norm], batch_.gradient_dtype}, model_.width, 1.0F);
  };
  switch (call.part) {
    case 0: return stream_.copy(kernels, call.d_stream, own);
    case 1:
      contraction_backward(kernels, call, saved, work, call.exchange);
      return norm(kernels, saved.h, call.parameters[at_.norm2], own, saved.rstd2);
    case 2: return expansion_backward(kernels, call, work, call.exchange, call.exchange);
    case 3:
      norm_backward(kernels, call, at_.norm2, own, saved.h, saved.rstd2);
      return stream_.copy(kernels, call.d_stream, own);
    case 4:
      attention_backward(kernels, call, saved, work, call.exchange);
      return norm(kernels, call.input, call.parameters[at_.norm1], own, saved.rstd1);
    case 5: return projections_backward(kernels, call, work, call.exchange, call.exchange);
    case 6:
      norm_backward(kernels, call, at_.norm1, own, call.input, saved.rstd1);
      put_gradient(at_.norm1, call.exchange);
      return put_gradient(at_.norm2, call.exchange + of_norm);
    default: take_gradient(call.exchange, at_.norm1); return take_gradient(call.exchange + of_norm, at_.norm2);
  }
}

/// d_stream: adds what comes through a norm. `normed`: its output once more, or null.
void Block::norm_backward(backend::Kernels& kernels, const ModuleCall& call, std::size_t weight,
                          const std::byte* d_normed, const std::byte* x, const float* rstd, std::byte* normed) const {
  kernels.rms_norm_backward({.shape = stream_.shape(),
                             .d_y = d_normed,
                             .x = x,
                             .weight = call.parameters[weight],
                             .rstd = rstd,
                             .d_x = call.d_stream,
                             .d_weight = {call.gradients[weight], batch_.gradient_dtype},
                             .y = normed});
}

/// From d_y to the gradients of gate and up.
void Block::contraction_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                                 const BackwardWorkspace& work, const std::byte* d_y) const {
  contract_.input_gradient(kernels, d_y, call.parameters[at_.down], work.d_product);
  swiglu_backward(kernels, saved, work);
  contract_.weight_gradient(kernels, d_y, work.d_product, call.gradients[at_.down]);
}

/// From the gradient of the product, which it replaces by the product.
void Block::swiglu_backward(backend::Kernels& kernels, const Saved& saved, const BackwardWorkspace& work) const {
  kernels.swiglu_backward({.shape = {contract_.rows, model_.ffn_width, batch_.dtype},
                           .d_y = work.d_product,
                           .gate = saved.gate_up[0],
                           .up = saved.gate_up[1],
                           .d_gate = work.d_gate_up[0],
                           .d_up = work.d_gate_up[1],
                           .y = work.d_product});
}

/// From those to the gradient of the norm before, which may take its place.
void Block::expansion_backward(backend::Kernels& kernels, const ModuleCall& call, const BackwardWorkspace& work,
                               const std::byte* normed, std::byte* d_normed) const {
  gate_up_.weight_gradient(kernels, work.d_gate_up, normed, call.gradients.subspan(at_.gate_up));
  gate_up_.input_gradient(kernels, work.d_gate_up, call.parameters.subspan(at_.gate_up), d_normed);
}

/// From d_h to the gradients of queries, keys and values.
void Block::attention_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                               const BackwardWorkspace& work, const std::byte* d_h) const {
  const auto& [q, k, v] = saved.qkv;
  const auto& [d_q, d_k, d_v] = work.d_qkv;
  output_.weight_gradient(kernels, d_h, saved.attended, call.gradients[at_.output]);
  output_.input_gradient(kernels, d_h, call.parameters[at_.output], work.d_attended);
  kernels.attention_backward({.shape = attention_,
                              .d_out = work.d_attended,
                              .q = q,
                              .k = k,
                              .v = v,
                              .out = saved.attended,
                              .log_sum_exp = saved.log_sum_exp,
                              .d_q = d_q,
                              .d_k = d_k,
                              .d_v = d_v,
                              .scratch = work.scratch});
  rotate(kernels, work.d_qkv, true);
}

/// From those to the gradient of the norm before, which may take its place.
void Block::projections_backward(backend::Kernels& kernels, const ModuleCall& call, const BackwardWorkspace& work,
                                 const std::byte* normed, std::byte* d_normed) const {
  qkv_.weight_gradient(kernels, work.d_qkv, normed, call.gradients.subspan(at_.qkv));
  qkv_.input_gradient(kernels, work.d_qkv, call.parameters.subspan(at_.qkv), d_normed);
}

}  // namespace fsdpbench::model
