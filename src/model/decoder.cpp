#include "model/decoder.h"

#include "model/arena.h"
#include "model/parts.h"

namespace fsdpbench::model {
namespace {

enum HeadParameter : std::size_t { kNorm, kWeight };

const std::int32_t* as_tokens(const std::byte* memory) { return reinterpret_cast<const std::int32_t*>(memory); }

}  // namespace

backend::VocabularyPart Decoder::vocabulary_of(const ModuleCall& call) const {
  return {call.tensor.index * model_.vocab, model_.vocab, call.tensor.ranks * model_.vocab};
}

Decoder::Decoder(const config::Model& model, BatchShape batch, int tensor)
    : model_(model),
      batch_(batch),
      tensor_(tensor),
      block_(model, batch, tensor),
      logits_{batch.rows(), model.width, model.vocab, batch.dtype, logits_stride(model.vocab, batch.dtype, tensor)} {}

std::vector<plan::ModuleSizes> Decoder::sizes() const {
  std::vector<plan::ModuleSizes> sizes;
  sizes.push_back(embedding_sizes());
  sizes.insert(sizes.end(), static_cast<std::size_t>(model_.layers), block_.sizes());
  sizes.push_back(head_sizes());
  return sizes;
}

void Decoder::forward(int module, backend::Kernels& kernels, const ModuleCall& call) const {
  if (module == 0) return embedding_forward(kernels, call);
  if (module <= model_.layers) return block_.forward(kernels, call);
  head_forward(kernels, call);
}

void Decoder::backward(int module, backend::Kernels& kernels, const ModuleCall& call) const {
  if (module == 0) return embedding_backward(kernels, call);
  if (module <= model_.layers) return block_.backward(kernels, call);
  head_backward(kernels, call);
}

plan::ModuleSizes Decoder::embedding_sizes() const {
  plan::ModuleSizes sizes;
  sizes.batch_input_bytes = batch_.rows() * size_of(DType::i32);
  sizes.batch_target_bytes = batch_.rows() * size_of(DType::i32);
  sizes.output_bytes = logits_.input_bytes();
  if (tensor_ > 1) set_embedding_parts(model_, batch_, sizes);
  return sizes;
}

void Decoder::embedding_forward(backend::Kernels& kernels, const ModuleCall& call) const {
  if (call.output == nullptr) return;
  if (tensor_ > 1) {
    return kernels.embedding_part(call.parameters[0], as_tokens(call.batch.inputs), call.output, batch_.rows(),
                                  vocabulary_of(call), model_.width, batch_.dtype);
  }
  kernels.embedding(call.parameters[0], as_tokens(call.batch.inputs), call.output, batch_.rows(), model_.vocab,
                    model_.width, batch_.dtype);
}

void Decoder::embedding_backward(backend::Kernels& kernels, const ModuleCall& call) const {
  // A tied head has written its part of the same gradient before.
  if (tensor_ > 1) {
    return kernels.embedding_part_backward(call.d_stream, as_tokens(call.batch.inputs), call.gradients[0],
                                           batch_.rows(), vocabulary_of(call), model_.width, !model_.tied_head,
                                           batch_.dtype);
  }
  kernels.embedding_backward(call.d_stream, as_tokens(call.batch.inputs), call.gradients[0], batch_.rows(),
                             model_.vocab, model_.width, !model_.tied_head, batch_.dtype);
}

Decoder::HeadSaved Decoder::carve_saved(std::byte* memory) const {
  Arena arena(memory);
  HeadSaved s{};
  s.d_logits = arena.take(logits_.output_bytes());
  s.rstd = arena.take_array<float>(batch_.rows());
  s.bytes = arena.bytes();
  return s;
}

Decoder::HeadWorkspace Decoder::carve_workspace(std::byte* memory, bool backward) const {
  Arena arena(memory);
  HeadWorkspace w{};
  w.normed = arena.take(logits_.input_bytes());
  if (backward && tensor_ == 1) w.d_normed = arena.take(logits_.input_bytes());
  w.bytes = arena.bytes();
  return w;
}

plan::ModuleSizes Decoder::head_sizes() const {
  plan::ModuleSizes sizes;
  sizes.saved_bytes = carve_saved(nullptr).bytes;
  sizes.forward_workspace_bytes = carve_workspace(nullptr, false).bytes;
  sizes.backward_workspace_bytes = carve_workspace(nullptr, true).bytes;
  sizes.forward_flops = logits_.flops();
  sizes.backward_flops = 2 * logits_.flops();
  if (tensor_ > 1) set_head_parts(model_, batch_, sizes);
  return sizes;
}

void Decoder::head_forward(backend::Kernels& kernels, const ModuleCall& call) const {
  const HeadSaved saved = carve_saved(call.saved);
  const HeadWorkspace work = carve_workspace(call.workspace, false);
  if (call.runs(0)) {
    kernels.rms_norm(call.input, call.parameters[kNorm], work.normed, saved.rstd, batch_.rows(), model_.width,
                     static_cast<float>(model_.norm_epsilon), batch_.dtype);
    logits_.forward(kernels, work.normed, call.parameters[kWeight], saved.d_logits);
    if (tensor_ > 1) {
      float* const mine = reinterpret_cast<float*>(call.exchange) + call.tensor.index * loss_terms(batch_);
      kernels.cross_entropy_terms(saved.d_logits, as_tokens(call.batch.targets), mine, batch_.rows(),
                                  vocabulary_of(call), batch_.dtype);
    }
  }
  if (call.runs(1)) loss(kernels, call, saved);
}

void Decoder::loss(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved) const {
  const std::int32_t* const targets = as_tokens(call.batch.targets);
  if (tensor_ == 1) {
    return kernels.cross_entropy(saved.d_logits, targets, call.loss, batch_.rows(), model_.vocab, logits_.out_stride,
                                 call.loss_scale, batch_.dtype);
  }
  kernels.cross_entropy_of_terms(saved.d_logits, targets, reinterpret_cast<const float*>(call.exchange), tensor_,
                                 call.loss, batch_.rows(), vocabulary_of(call), call.loss_scale, batch_.dtype);
}

void Decoder::head_backward(backend::Kernels& kernels, const ModuleCall& call) const {
  const HeadSaved saved = carve_saved(call.saved);
  HeadWorkspace work = carve_workspace(call.workspace, true);
  if (tensor_ > 1) work.d_normed = call.exchange;
  if (call.runs(0)) {
    kernels.rms_norm(call.input, call.parameters[kNorm], work.normed, saved.rstd, batch_.rows(), model_.width,
                     static_cast<float>(model_.norm_epsilon), batch_.dtype);
    logits_.weight_gradient(kernels, saved.d_logits, work.normed, call.gradients[kWeight]);
    logits_.input_gradient(kernels, saved.d_logits, call.parameters[kWeight], work.d_normed);
  }
  if (!call.runs(1)) return;
  kernels.fill_zero(call.d_stream, logits_.input_bytes());  // nothing flows in after the loss
  kernels.rms_norm_backward(work.d_normed, call.input, call.parameters[kNorm], saved.rstd, call.d_stream,
                            call.gradients[kNorm], batch_.rows(), model_.width, batch_.dtype);
}

}  // namespace fsdpbench::model
