#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "config/run_config.h"
#include "model/model.h"
#include "model/parts.h"
#include "plan/module_work.h"

namespace fsdpbench::model {

/// The first key of the configuration that asks for what no kernel computes: "model.norm"; empty if it can be trained.
std::string_view key_without_kernels(const config::RunConfig& config);
/// Key of the model alone.
std::string_view key_without_kernels(const config::Model& model);

/// Program whose modules these are, and what their loss holds of the logits.
struct Keeps {
  config::Simulate::Framework framework = config::Simulate::Framework::own;
  config::Simulate::Loss loss = config::Simulate::Loss::fused;
  bool compiled = false;
  bool autograd() const { return framework != config::Simulate::Framework::own; }
};

/// A decoder of any kind as far as its sizes go: what its modules would keep, need and compute, counted as Decoder
/// counts them (of models that both know, to the byte). It cannot run: forward and backward throw ConfigError.
class Outline final : public Model {
 public:
  /// `model`: of one of the ranks that split every layer (plan::tensor_part).
  /// `experts`: how ranks split them, of whom this one is the busiest; if they do not, it says nothing.
  /// `context`: how ranks split each sequence; `batch` is what one of them has.
  /// `keeps`: what its modules keep, and its loss; by default as this engine's do.
  Outline(const config::Model& model, BatchShape batch, TensorSplit split = {}, const plan::ExpertSplit& experts = {},
          Keeps keeps = {}, std::int64_t context = 1)
      : model_(model),
        batch_(batch),
        split_(split),
        experts_(experts),
        keeps_(keeps),
        context_(context),
        stream_(model, batch, split) {}

  std::vector<plan::ModuleSizes> sizes() const override;
  void forward(int module, backend::Kernels& kernels, const ModuleCall& call) const override;
  void backward(int module, backend::Kernels& kernels, const ModuleCall& call) const override;

 private:
  plan::ModuleSizes embedding() const;
  plan::ModuleSizes block(std::int64_t layer) const;
  plan::ModuleSizes head() const;
  /// Bytes of a tensor of `features` a token, of a statistic, and of one of a norm. Throw ResourceError if that is more
  /// than 8 EiB.
  std::int64_t tensor(std::int64_t features) const {
    return checked_product(batch_.rows(), features, size_of(batch_.dtype));
  }
  std::int64_t statistics(std::int64_t count) const {
    return checked_product(batch_.rows(), count, size_of(DType::f32));
  }
  std::int64_t norm_statistics() const {
    const std::int64_t count = model_.norm == config::Norm::layer ? 2 : 1;  // its deviation, and for LayerNorm its mean
    return checked_product(stream_.rows, count, size_of(DType::f32));
  }

  /// Values of `features` each for the rows that come to this rank's experts.
  std::int64_t routed(std::int64_t features) const;
  void set_parts(const plan::ModuleWork& work, plan::ModuleSizes& sizes) const;

  config::Model model_;
  BatchShape batch_;
  TensorSplit split_;
  plan::ExpertSplit experts_;
  Keeps keeps_;
  std::int64_t context_;
  Stream stream_;
};

}  // namespace fsdpbench::model
