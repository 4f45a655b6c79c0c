#pragma once

#include "model/linear_map.h"
#include "model/model.h"

namespace fsdpbench::model {

/// Linear layers with bias, ReLU between them and none after the last, then the mean squared error.
///
/// A layer hands on its value before ReLU and the next one applies it: so its backward finds the mask in its own
/// input, and layers save nothing.
class Mlp final : public Model {
 public:
  Mlp(const config::Model& model, BatchShape batch);

  std::vector<plan::ModuleSizes> sizes() const override;
  void forward(int module, backend::Kernels& kernels, const ModuleCall& call) const override;
  void backward(int module, backend::Kernels& kernels, const ModuleCall& call) const override;

 private:
  // Tensors in memory, or only their bytes if that is null.
  struct Workspace {
    std::int64_t bytes;
    std::byte *x, *d_x;  // what the layer multiplies, if not the batch itself; d_x: backward only
  };
  Workspace carve_workspace(std::byte* memory, int layer, bool backward) const;
  LinearMap map(int layer) const;
  /// Nobody wants that of the batch.
  bool wants_input_gradient(int layer) const { return layer > model_.first_trained(); }
  /// The layer's operand: the batch in the compute dtype, or ReLU of the previous layer's output.
  const std::byte* operand(int layer, backend::Kernels& kernels, const ModuleCall& call, const Workspace& work) const;
  std::int64_t prediction_count() const { return batch_.rows() * model_.out_features; }
  bool is_loss(int module) const { return module == model_.layers; }

  config::Model model_;
  BatchShape batch_;
};

}  // namespace fsdpbench::model
