#include "model/decoder.h"

#include <memory>

#include "model/model.h"
#include "model/outline.h"

namespace fsdpbench::model {
namespace {

enum LayerParameter : std::size_t { kLayerWeight, kLayerBias };
enum HeadParameter : std::size_t { kNorm, kWeight };

const std::int32_t* as_tokens(const std::byte* memory) { return reinterpret_cast<const std::int32_t*>(memory); }

/// Linear layers with bias, ReLU between them and none after the last, then the mean squared error.
///
/// A layer hands on its value before ReLU and the next one applies it: so its backward finds the mask in its own
/// input, and layers save nothing.
class Mlp final : public Model {
 public:
  Mlp(const config::Model& model, BatchShape batch) : model_(model), batch_(batch) {}

  std::vector<plan::ModuleSizes> sizes() const override {
    std::vector<plan::ModuleSizes> sizes;
    for (int layer = 0; layer < model_.layers; ++layer) {
      plan::ModuleSizes s;
      s.output_bytes = map(layer).output_bytes();
      s.forward_workspace_bytes = carve_workspace(nullptr, layer, false).bytes;
      s.backward_workspace_bytes = carve_workspace(nullptr, layer, true).bytes;
      s.forward_flops = map(layer).flops();
      const int products = (model_.trains_weights(layer) ? 1 : 0) + (wants_input_gradient(layer) ? 1 : 0);
      s.backward_flops = products * map(layer).flops();
      sizes.push_back(s);
    }
    sizes.front().batch_input_bytes = batch_.rows() * model_.in_features * size_of(DType::f32);
    sizes.front().batch_target_bytes = prediction_count() * size_of(DType::f32);
    plan::ModuleSizes loss;
    loss.saved_bytes = prediction_count() * size_of(batch_.dtype);
    sizes.push_back(loss);
    return sizes;
  }

  void forward(int module, backend::Kernels& kernels, const ModuleCall& call) const override {
    if (is_loss(module)) {
      return kernels.mean_squared_error({.count = prediction_count(),
                                         .dtype = batch_.dtype,
                                         .prediction = call.input,
                                         .target = reinterpret_cast<const float*>(call.batch.targets),
                                         .d_prediction = call.saved,
                                         .loss = call.loss,
                                         .loss_scale = call.loss_scale});
    }
    if (call.output == nullptr) return;  // nothing is saved
    const LinearMap linear = map(module);
    const Workspace work = carve_workspace(call.workspace, module, false);
    linear.forward(kernels, operand(module, kernels, call, work), call.parameters[kLayerWeight], call.output);
    kernels.add_bias({linear.rows, linear.out, batch_.dtype}, call.output, call.parameters[kLayerBias]);
  }

  void backward(int module, backend::Kernels& kernels, const ModuleCall& call) const override {
    if (is_loss(module)) {
      return kernels.cast({call.saved, batch_.dtype}, {call.d_stream, batch_.dtype}, prediction_count(), 1.0F);
    }
    const LinearMap linear = map(module);
    const Workspace work = carve_workspace(call.workspace, module, true);
    if (model_.trains_weights(module)) {
      linear.weight_gradient(kernels, call.d_stream, operand(module, kernels, call, work),
                             call.gradients[kLayerWeight]);
      kernels.bias_backward({linear.rows, linear.out, batch_.dtype}, call.d_stream,
                            {call.gradients[kLayerBias], batch_.gradient_dtype});
    }
    if (!wants_input_gradient(module)) return;
    linear.input_gradient(kernels, call.d_stream, call.parameters[kLayerWeight], work.d_x);
    kernels.relu_backward(work.d_x, call.input, call.d_stream, linear.rows * linear.in, batch_.dtype);
  }

 private:
  // Tensors in memory, or only their bytes if that is null.
  struct Workspace {
    std::int64_t bytes;
    std::byte *x, *d_x;  // what the layer multiplies, if not the batch itself; d_x: backward only
  };

  LinearMap map(int layer) const {
    return {batch_.rows(), layer == 0 ? model_.in_features : model_.width,
            layer + 1 == model_.layers ? model_.out_features : model_.width, batch_.dtype, batch_.gradient_dtype};
  }

  Workspace carve_workspace(std::byte* memory, int layer, bool backward) const {
    Arena arena(memory);
    Workspace w{};
    if (layer > 0 || batch_.dtype != DType::f32) w.x = arena.take(map(layer).input_bytes());
    if (layer > 0 && backward) w.d_x = arena.take(map(layer).input_bytes());
    w.bytes = arena.bytes();
    return w;
  }

  /// The layer's operand: the batch in the compute dtype, or ReLU of the previous layer's output.
  const std::byte* operand(int layer, backend::Kernels& kernels, const ModuleCall& call, const Workspace& work) const {
    const std::int64_t count = map(layer).rows * map(layer).in;
    if (layer > 0) {
      kernels.relu(call.input, work.x, count, batch_.dtype);
      return work.x;
    }
    if (batch_.dtype == DType::f32) return call.batch.inputs;
    kernels.cast({call.batch.inputs, DType::f32}, {work.x, batch_.dtype}, count, 1.0F);
    return work.x;
  }

  /// Nobody wants that of the batch.
  bool wants_input_gradient(int layer) const { return layer > model_.first_trained(); }
  std::int64_t prediction_count() const { return batch_.rows() * model_.out_features; }
  bool is_loss(int module) const { return module == model_.layers; }

  config::Model model_;
  BatchShape batch_;
};

}  // namespace

backend::VocabularyPart Decoder::vocabulary_of(const ModuleCall& call) const {
  return {call.tensor.index * model_.vocab, model_.vocab, call.tensor.ranks * model_.vocab};
}

Decoder::Decoder(const config::Model& model, BatchShape batch, TensorSplit split)
    : model_(model),
      batch_(batch),
      split_(split),
      stream_(model, batch, split),
      logits_{batch.rows(), model.width,          model.vocab,
              batch.dtype,  batch.gradient_dtype, logits_stride(model.vocab, batch.dtype, split.ranks)},
      block_(model, batch, split) {}

std::vector<plan::ModuleSizes> Decoder::sizes() const { return Outline(model_, batch_, split_).sizes(); }

std::pair<plan::ModuleSizes, plan::ModuleSizes> Decoder::carved() const {
  plan::ModuleSizes head;
  head.saved_bytes = carve_saved(nullptr).bytes;
  head.forward_workspace_bytes = carve_workspace(nullptr, false).bytes;
  head.backward_workspace_bytes = carve_workspace(nullptr, true).bytes;
  return {block_.carved(), head};
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

void Decoder::embedding_forward(backend::Kernels& kernels, const ModuleCall& call) const {
  if (call.output == nullptr) return;
  if (split_.tokens && call.part == 1) return stream_.copy(kernels, stream_.in_exchange(call), call.output);
  kernels.embedding({.shape = {batch_.rows(), model_.width, batch_.dtype},
                     .part = vocabulary_of(call),
                     .table = call.parameters[0],
                     .tokens = as_tokens(call.batch.inputs),
                     .y = split_.ranks > 1 ? call.exchange : call.output});
}

void Decoder::embedding_backward(backend::Kernels& kernels, const ModuleCall& call) const {
  if (split_.tokens && call.part == 0) return stream_.copy(kernels, call.d_stream, stream_.in_exchange(call));
  // A tied head has written its part of the same gradient before.
  kernels.embedding_backward({.shape = {batch_.rows(), model_.width, batch_.dtype},
                              .part = vocabulary_of(call),
                              .d_y = split_.tokens ? call.exchange : call.d_stream,
                              .tokens = as_tokens(call.batch.inputs),
                              .d_table = {call.gradients[0], batch_.gradient_dtype},
                              .overwrite = !model_.tied_head});
}

Decoder::HeadSaved Decoder::carve_saved(std::byte* memory) const {
  Arena arena(memory);
  HeadSaved s{};
  s.d_logits = arena.take(logits_.output_bytes());
  s.rstd = arena.take_array<float>(stream_.rows);
  s.bytes = arena.bytes();
  return s;
}

Decoder::HeadWorkspace Decoder::carve_workspace(std::byte* memory, bool backward) const {
  Arena arena(memory);
  HeadWorkspace w{};
  if (!split_.tokens) w.normed = arena.take(logits_.input_bytes());
  if (backward && split_.ranks == 1) w.d_normed = arena.take(logits_.input_bytes());
  w.bytes = arena.bytes();
  return w;
}

void Decoder::head_forward(backend::Kernels& kernels, const ModuleCall& call) const {
  const HeadSaved saved = carve_saved(call.saved);
  std::byte* const normed = split_.tokens ? call.exchange : carve_workspace(call.workspace, false).normed;
  const int logits_part = split_.tokens ? 1 : 0;
  if (call.runs(0)) norm(kernels, call, saved, split_.tokens ? stream_.in_exchange(call) : normed);
  if (call.runs(logits_part)) logits(kernels, call, saved, normed);
  if (call.runs(logits_part + 1)) loss(kernels, call, saved);
}

void Decoder::norm(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved, std::byte* normed) const {
  kernels.rms_norm({.shape = stream_.shape(),
                    .x = call.input,
                    .weight = call.parameters[kNorm],
                    .y = normed,
                    .rstd = saved.rstd,
                    .epsilon = static_cast<float>(model_.norm_epsilon)});
}

/// And what the loss needs of them, which may take the place of `normed`.
void Decoder::logits(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved,
                     const std::byte* normed) const {
  logits_.forward(kernels, normed, call.parameters[kWeight], saved.d_logits);
  if (split_.ranks == 1) return;
  float* const mine = reinterpret_cast<float*>(call.exchange) + call.tensor.index * loss_terms(batch_);
  kernels.cross_entropy_terms(loss_of(call, saved), mine);
}

void Decoder::loss(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved) const {
  if (split_.ranks == 1) return kernels.cross_entropy(loss_of(call, saved));
  kernels.cross_entropy_of_terms(loss_of(call, saved), reinterpret_cast<const float*>(call.exchange), split_.ranks);
}

backend::CrossEntropyCall Decoder::loss_of(const ModuleCall& call, const HeadSaved& saved) const {
  return {.part = vocabulary_of(call),
          .rows = batch_.rows(),
          .stride = logits_.out_stride,
          .dtype = batch_.dtype,
          .logits = saved.d_logits,
          .targets = as_tokens(call.batch.targets),
          .loss = call.loss,
          .loss_scale = call.loss_scale};
}

void Decoder::head_backward(backend::Kernels& kernels, const ModuleCall& call) const {
  const HeadSaved saved = carve_saved(call.saved);
  if (split_.tokens) return head_backward_by_tokens(kernels, call, saved);
  const HeadWorkspace work = carve_workspace(call.workspace, true);
  if (split_.ranks == 1) {  // as a block's norms
    logits_.input_gradient(kernels, saved.d_logits, call.parameters[kWeight], work.d_normed);
    norm_backward(kernels, call, saved, work.d_normed, work.normed);
    return logits_.weight_gradient(kernels, saved.d_logits, work.normed, call.gradients[kWeight]);
  }
  if (call.runs(0)) {
    norm(kernels, call, saved, work.normed);
    logits_backward(kernels, call, saved, work.normed, call.exchange);
  }
  if (call.runs(1)) norm_backward(kernels, call, saved, call.exchange);
}

/// See [Note: parts by tokens] in model.h.
void Decoder::head_backward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved) const {
  std::byte* const own = stream_.in_exchange(call);
  const backend::Elements d_weight{call.gradients[kNorm], batch_.gradient_dtype};
  switch (call.part) {
    case 0: return norm(kernels, call, saved, own);
    case 1: return logits_backward(kernels, call, saved, call.exchange, call.exchange);
    case 2:
      norm_backward(kernels, call, saved, own);
      return kernels.cast(d_weight, {call.exchange, batch_.dtype}, model_.width, 1.0F);
    default: return kernels.cast({call.exchange, batch_.dtype}, d_weight, model_.width, 1.0F);
  }
}

/// `d_normed` may be `normed`.
void Decoder::logits_backward(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved,
                              const std::byte* normed, std::byte* d_normed) const {
  logits_.weight_gradient(kernels, saved.d_logits, normed, call.gradients[kWeight]);
  logits_.input_gradient(kernels, saved.d_logits, call.parameters[kWeight], d_normed);
}

/// `normed`: the norm's output once more, or null.
void Decoder::norm_backward(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved,
                            const std::byte* d_normed, std::byte* normed) const {
  kernels.fill_zero(call.d_stream, stream_.bytes());  // nothing flows in after the loss
  kernels.rms_norm_backward({.shape = stream_.shape(),
                             .d_y = d_normed,
                             .x = call.input,
                             .weight = call.parameters[kNorm],
                             .rstd = saved.rstd,
                             .d_x = call.d_stream,
                             .d_weight = {call.gradients[kNorm], batch_.gradient_dtype},
                             .y = normed});
}

// The shapes name the parameters and say in which order a module gets them; the sizes follow from the model itself.
std::unique_ptr<Model> make_model(const config::Model& model, const plan::ModelShapes&, BatchShape batch,
                                  TensorSplit split) {
  if (model.kind == config::ModelKind::mlp) return std::make_unique<Mlp>(model, batch);
  const config::Model part = plan::tensor_part(model, split.ranks);
  if (!key_without_kernels(model).empty()) return std::make_unique<Outline>(part, batch, split);
  return std::make_unique<Decoder>(part, batch, split);
}

std::unique_ptr<Model> make_model(const config::RunConfig& config, const plan::ModelShapes& shapes) {
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  const BatchShape batch{config.train.batch_per_rank, decoder ? config.train.seq_len / config.mesh.context : 1,
                         config.fsdp.param_dtype, config.fsdp.gradient_dtype()};
  const Keeps keeps{config.framework(), config.loss(), config.simulate.compiled};
  if (config.mesh.context > 1) {
    return std::make_unique<Outline>(config.model, batch, TensorSplit(), plan::ExpertSplit(), keeps,
                                     config.mesh.context);
  }
  if (config.mesh.expert > 1) {
    return std::make_unique<Outline>(config.model, batch, TensorSplit(), plan::expert_split(config), keeps);
  }
  const TensorSplit split{static_cast<int>(config.mesh.tensor), config.mesh.sequence_parallel};
  // Only an outline says what a block saves for its feed-forward.
  const bool outlined =
      config.fsdp.activation_checkpointing && config::checkpoints_a_module(config.fsdp.checkpoint_keeps);
  if (decoder && (keeps.autograd() || keeps.loss != config::Simulate::Loss::fused || outlined)) {
    return std::make_unique<Outline>(plan::tensor_part(config.model, split.ranks), batch, split, plan::ExpertSplit(),
                                     keeps);
  }
  return make_model(config.model, shapes, batch, split);
}

}  // namespace fsdpbench::model
