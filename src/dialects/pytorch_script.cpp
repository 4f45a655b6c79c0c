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

namespace {

/// The names of what torch.ops.aten has on some device.
constexpr std::string_view kKeptOutputs = R"(
def operators(*names):
    return {getattr(torch.ops.aten, name).default for name in names if hasattr(torch.ops.aten, name)}


ATTENTION = operators(*(f"_scaled_dot_product_{kind}" for kind in (
    "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")))
PRODUCTS = operators("mm", "addmm")

)";

/// The policy of torch.utils.checkpoint that fsdp.checkpoint_keeps is.
std::string python_policy(config::CheckpointKeeps keeps) {
  std::string_view what, count, kept;
  switch (keeps) {
    case config::CheckpointKeeps::attention: what = "attention", kept = "op in ATTENTION"; break;
    case config::CheckpointKeeps::products:
      what = "attention and matrix products", kept = "op in ATTENTION | PRODUCTS";
      break;
    case config::CheckpointKeeps::every_second_product:
      what = "attention and of every second matrix product";
      count = "        products[context.is_recompute] += op in PRODUCTS\n";
      kept = "op in ATTENTION or (op in PRODUCTS and products[context.is_recompute] % 2 == 1)";
      break;
    default: return "";
  }
  return fmt::format(R"({}
def keep_outputs():
    """Keeps the outputs of {} for the recomputation."""
{}
    def policy(context, op, *args, **kwargs):
{}        kept = {}
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)

)",
                     kKeptOutputs, what,
                     count.empty() ? "" : "    products = [0, 0]  # so far: in forward, in the recomputation\n", count,
                     kept);
}

}  // namespace

std::string python_checkpoint_imports(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing) return "";
  return "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (\n"
         "    CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper)\n";
}

std::string python_policy_imports(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || python_policy(s.fsdp().checkpoint_keeps).empty()) return "";
  return "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts\n";
}

std::string python_checkpointing(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing) return "";
  const std::int64_t every = s.fsdp().checkpoint_every;
  const std::string policy = python_policy(s.fsdp().checkpoint_keeps);
  const std::string blocks = every == 1 ? "each block" : fmt::format("one block in {}", every);
  return policy + fmt::format(R"(
def checkpoint_blocks(model):
    """Keeps only the input of {}, and recomputes the rest in backward."""
    chosen = set(blocks_of(model){})
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT{})
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: m in chosen)

)",
                              blocks + (policy.empty() ? "" : " and what keep_outputs() says"),
                              every == 1 ? "" : fmt::format("[::{}]", every),
                              policy.empty() ? "" : ", context_fn=keep_outputs");
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

Said checkpoint_keeps(const ExportSource& s) {
  const config::Fsdp& fsdp = s.fsdp();
  if (!fsdp.activation_checkpointing || fsdp.checkpoint_keeps == config::CheckpointKeeps::nothing) return same();
  if (python_policy(fsdp.checkpoint_keeps).empty()) return lost("checkpoint_wrapper is around whole blocks");
  if (s.config.model.experts == 0) return written("create_selective_checkpoint_contexts");
  return roughly("create_selective_checkpoint_contexts, which counts the router's product, too");
}

Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return written(fmt::format("blocks_of(model)[::{}]", s.fsdp().checkpoint_every));
}

}  // namespace fsdpbench::dialects
