#include <memory>

#include "model/decoder.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/outline.h"

namespace fsdpbench::model {

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
  // Of nothing that runs: [simulate] has no effect there.
  const bool eager_loss =
      decoder && config.simulate.eager_loss && config.device.backend == config::BackendKind::virtual_;
  if (config.mesh.context > 1) {
    return std::make_unique<Outline>(config.model, batch, TensorSplit(), plan::ExpertSplit(), eager_loss,
                                     plan::context_split(config));
  }
  if (config.mesh.expert > 1) {
    if (!key_without_kernels(config).empty()) {
      return std::make_unique<Outline>(config.model, batch, TensorSplit(), plan::expert_split(config), eager_loss);
    }
    // The data say who is busy.
    return std::make_unique<Decoder>(config.model, batch, TensorSplit(), plan::even_expert_split(config));
  }
  // Only an outline says what a block saves for its feed-forward.
  const bool outlined =
      config.fsdp.activation_checkpointing && config::checkpoints_a_module(config.fsdp.checkpoint_keeps);
  if (decoder && (eager_loss || outlined)) {
    return std::make_unique<Outline>(config.model, batch, TensorSplit(), plan::ExpertSplit(), eager_loss);
  }
  return make_model(config.model, shapes, batch, {static_cast<int>(config.mesh.tensor), config.mesh.sequence_parallel});
}

}  // namespace fsdpbench::model
