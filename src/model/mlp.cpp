#include "model/mlp.h"

#include "model/model.h"

namespace fsdpbench::model {
namespace {

enum LayerParameter : std::size_t { kLayerWeight, kLayerBias };

}  // namespace

Mlp::Mlp(const config::Model& model, BatchShape batch) : model_(model), batch_(batch) {}

LinearMap Mlp::map(int layer) const {
  return {batch_.rows(), layer == 0 ? model_.in_features : model_.width,
          layer + 1 == model_.layers ? model_.out_features : model_.width, batch_.dtype, batch_.gradient_dtype};
}

Mlp::Workspace Mlp::carve_workspace(std::byte* memory, int layer, bool backward) const {
  Arena arena(memory);
  Workspace w{};
  if (layer > 0 || batch_.dtype != DType::f32) w.x = arena.take(map(layer).input_bytes());
  if (layer > 0 && backward) w.d_x = arena.take(map(layer).input_bytes());
  w.bytes = arena.bytes();
  return w;
}

std::vector<plan::ModuleSizes> Mlp::sizes() const {
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

const std::byte* Mlp::operand(int layer, backend::Kernels& kernels, const ModuleCall& call,
                              const Workspace& work) const {
  const std::int64_t count = map(layer).rows * map(layer).in;
  if (layer > 0) {
    kernels.relu(call.input, work.x, count, batch_.dtype);
    return work.x;
  }
  if (batch_.dtype == DType::f32) return call.batch.inputs;
  kernels.cast({call.batch.inputs, DType::f32}, {work.x, batch_.dtype}, count, 1.0F);
  return work.x;
}

void Mlp::forward(int module, backend::Kernels& kernels, const ModuleCall& call) const {
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

void Mlp::backward(int module, backend::Kernels& kernels, const ModuleCall& call) const {
  if (is_loss(module)) {
    return kernels.cast({call.saved, batch_.dtype}, {call.d_stream, batch_.dtype}, prediction_count(), 1.0F);
  }
  const LinearMap linear = map(module);
  const Workspace work = carve_workspace(call.workspace, module, true);
  if (model_.trains_weights(module)) {
    linear.weight_gradient(kernels, call.d_stream, operand(module, kernels, call, work), call.gradients[kLayerWeight]);
    kernels.bias_backward({linear.rows, linear.out, batch_.dtype}, call.d_stream,
                          {call.gradients[kLayerBias], batch_.gradient_dtype});
  }
  if (!wants_input_gradient(module)) return;
  linear.input_gradient(kernels, call.d_stream, call.parameters[kLayerWeight], work.d_x);
  kernels.relu_backward(work.d_x, call.input, call.d_stream, linear.rows * linear.in, batch_.dtype);
}

}  // namespace fsdpbench::model
