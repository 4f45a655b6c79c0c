#include "dialects/pytorch_script.h"

#include <fmt/format.h>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {

std::string python_head(const std::vector<std::string>& notes, std::string_view imports) {
  std::string text = "\"\"\"";
  for (const std::string& line : notes) text += line + '\n';
  text += R"(
    mesh = make_mesh()
    model = apply_fsdp(model, mesh)
    optimizer = make_optimizer(model)
    for microbatches in batches:  # MICROBATCHES of them each
        train_step(model, optimizer, microbatches, loss_of)
"""

)";
  return text + std::string(imports) + '\n';
}

std::string python_constants(const ExportSource& s) {
  const bool one_unit = s.fsdp().wrap.mode == config::Wrap::Mode::model;
  const std::string units =
      one_unit ? fmt::format("BLOCKS = {}  # all of them in the root\n", s.config.model.layers)
               : fmt::format("BLOCKS_OF_UNITS = {}\nBLOCKS = sum(BLOCKS_OF_UNITS)\n", python_runs(s.blocks_of_units()));
  return fmt::format("{}MICROBATCHES = {}  # a step, each of {} a rank\n\n", units, s.config.train.accumulate,
                     s.config.train.batch_per_rank);
}

std::string python_mesh(const ExportSource& s) {
  const config::Mesh& mesh = s.config.mesh;
  const bool replicas = config::is_hybrid(s.fsdp().strategy) || s.fsdp().strategy == config::Strategy::no_shard;
  const std::string axes =
      replicas ? fmt::format("({}, {}), mesh_dim_names=(\"replicate\", \"shard\")", mesh.replicate, mesh.shard)
               : fmt::format("({},), mesh_dim_names=(\"shard\",)", mesh.ranks);
  return fmt::format("\ndef make_mesh(device_type=\"cuda\"):\n    return init_device_mesh(device_type, {})\n\n", axes);
}

std::string python_blocks() {
  return R"(
def blocks_of(model):
    """The repeated blocks in forward order: the longest list of modules. Return your own if those are others."""
    lists = [list(m.values()) if isinstance(m, nn.ModuleDict) else list(m)
             for m in model.modules() if isinstance(m, (nn.ModuleList, nn.ModuleDict))]
    blocks = max(lists, key=len, default=[])
    if len(blocks) != BLOCKS:
        raise ValueError(f"These settings are for {BLOCKS} blocks; this model has {len(blocks)}.")
    return blocks

)";
}

std::string python_checkpointing(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing) return "";
  const std::int64_t every = s.fsdp().checkpoint_every;
  return fmt::format(R"(
def checkpoint_blocks(model):
    """Keeps only the input of {}, and recomputes the rest in backward."""
    chosen = set(blocks_of(model){})
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: m in chosen)

)",
                     every == 1 ? "each block" : fmt::format("one block in {}", every),
                     every == 1 ? "" : fmt::format("[::{}]", every));
}

std::string python_optimizer(const ExportSource& s, std::string_view parameters) {
  const config::Train& train = s.config.train;
  const std::string how =
      train.optimizer == config::Optimizer::sgd
          ? fmt::format("SGD({}, lr={}, weight_decay={})", parameters, train.learning_rate, train.weight_decay)
          : fmt::format("AdamW({}, lr={}, betas=({}, {}), eps={}, weight_decay={})", parameters, train.learning_rate,
                        train.beta1, train.beta2, train.epsilon, train.weight_decay);
  return fmt::format("\ndef make_optimizer(model):\n    return torch.optim.{}\n\n", how);
}

std::string python_update(const ExportSource& s, std::string_view clip) {
  const std::string clipping = s.config.train.clip_norm > 0 ? std::string(clip) : "";
  return clipping + "    optimizer.step()\n    optimizer.zero_grad()\n";
}

Said in_the_script(const ExportSource&) { return written("in the script"); }

Said activation_checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing ? written("checkpoint_wrapper around blocks") : same();
}

Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return written(fmt::format("blocks_of(model)[::{}]", s.fsdp().checkpoint_every));
}

}  // namespace fsdpbench::dialects
