// Words of torchtitan: the TOML file of versions up to 0.2, and the arguments that newer ones take instead.
#include <fmt/format.h>

#include <array>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace titan {

using ReshardMode = config::ReshardAfterForward::Mode;

/// "default", "always" or "never".
std::string_view reshard_setting(const ExportSource& s) {
  if (s.fsdp().reshard_after_forward.mode == ReshardMode::always) return "always";
  return frees_after_forward(s) ? "default" : "never";
}

bool replicates(const ExportSource& s) {
  return config::is_hybrid(s.fsdp().strategy) || s.fsdp().strategy == config::Strategy::no_shard;
}

std::string_view mixed_precision(const ExportSource& s) {
  return s.fsdp().param_dtype == DType::bf16 ? "bfloat16" : "float32";
}

/// Without a limit the default of 1 would hold.
std::string max_norm(const ExportSource& s) {
  return s.config.train.clip_norm > 0 ? fmt::format("{}", s.config.train.clip_norm) : "inf";
}

std::int64_t global_batch(const ExportSource& s) {
  return s.config.train.batch_per_rank * s.config.train.accumulate * s.config.mesh.ranks;
}

Said batch_global(const ExportSource& s) {
  return s.config.train.batch_global == 0 ? same() : written("training.global_batch_size");
}

Said mesh(const ExportSource& s) {
  return replicates(s) ? written("data_parallel_replicate_degree, data_parallel_shard_degree")
                       : written("data_parallel_shard_degree");
}

Said strategy(const ExportSource& s) {
  switch (s.fsdp().strategy) {
    case config::Strategy::full_shard: return same();
    case config::Strategy::no_shard: return written("data_parallel_shard_degree = 1: DistributedDataParallel");
    case config::Strategy::shard_grad_op:
    case config::Strategy::hybrid_shard:
    case config::Strategy::hybrid_shard_grad_op: break;
  }
  return written("fsdp_reshard_after_forward, and the degrees of the mesh");
}

Said reshard_after_forward(const ExportSource& s) {
  switch (s.fsdp().reshard_after_forward.mode) {
    case ReshardMode::automatic: return same();
    case ReshardMode::never: return written("fsdp_reshard_after_forward = \"never\"");
    case ReshardMode::always: return roughly("fsdp_reshard_after_forward = \"always\"; a root of its own is empty");
    case ReshardMode::group: break;
  }
  return lost("a freed unit is gathered from the whole shard group again");
}

Said wrap(const ExportSource& s) {
  return s.fsdp().wrap.mode == config::Wrap::Mode::block ? written("each block is a unit")
                                                         : lost("each block is a unit");
}

Said head_unit(const ExportSource& s) {
  if (s.fsdp().head_unit)
    return roughly("norm and head are a unit that stays gathered after forward; the embedding is another");
  return lost("embedding, and norm with head, are units of their own; the latter stays gathered after forward");
}

Said param_dtype(const ExportSource& s) {
  return written(fmt::format("mixed_precision_param = \"{}\"", mixed_precision(s)));
}
Said reduce_dtype(const ExportSource& s) {
  return s.fsdp().reduce_dtype == DType::f32 ? same() : lost("gradients are reduced in float32");
}

Said gradient_scaling(const ExportSource& s) {
  if (s.fsdp().gradient_scaling == config::GradientScaling::sum) return same();
  return lost("gradients are summed (divide factor 1), and the loss is divided by the tokens of all ranks");
}

Said checkpointing(const ExportSource& s) {
  return written(s.fsdp().activation_checkpointing ? "activation_checkpoint" : "activation_checkpoint.mode = \"none\"");
}
Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return roughly(fmt::format("selective_ac_option = \"{}\", which begins with the {}th block",
                             s.fsdp().checkpoint_every, s.fsdp().checkpoint_every));
}

Said checkpoint_keeps(const ExportSource& s) {
  using config::CheckpointKeeps;
  const config::Fsdp& fsdp = s.fsdp();
  if (!fsdp.activation_checkpointing || fsdp.checkpoint_keeps == CheckpointKeeps::nothing) return same();
  if (fsdp.checkpoint_keeps == CheckpointKeeps::every_second_product && fsdp.checkpoint_every == 1) {
    return written("selective_ac_option = \"op\"");
  }
  return lost("selective_ac_option is one of \"op\", which keeps every second product and attention, and a number");
}

Said register_buffers(const ExportSource& s) {
  switch (s.config.nccl.register_buffers) {
    case config::NcclRegister::none: return same();
    case config::NcclRegister::local: return lost("nothing is registered");
    case config::NcclRegister::window: break;
  }
  return roughly("parallelism.enable_fsdp_symm_mem, from torchtitan 0.3 on");
}

Said expert(const ExportSource& s) {
  return s.config.mesh.expert == 1 ? same() : written("parallelism.expert_parallel_degree");
}

Said expert_overlap(const ExportSource& s) {
  const bool computes = s.config.mesh.expert > 1 && s.config.model.shared_experts > 0;
  return !computes || s.config.mesh.expert_overlap == config::ExpertOverlap::combine
             ? same()
             : lost("a shared expert is computed beside the rows that come back, in forward");
}

Said training(const ExportSource&) { return written("[training]"); }
Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1 || s.config.train.accumulate_mode == config::AccumulateMode::reduce_each)
    return same();
  return lost("each microbatch is reduced");
}
Said optimizer(const ExportSource& s) {
  return s.config.train.optimizer == config::Optimizer::adamw ? written("[optimizer]") : lost("AdamW");
}

Said cpu_offload(const ExportSource& s) { return offloads_all(s, "training.enable_cpu_offload"); }

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.ranks", mesh},
    {"mesh.shard", mesh},
    {"mesh.replicate", mesh},
    {"mesh.expert", expert},
    {"mesh.expert_imbalance", expert_imbalance},
    {"mesh.expert_sync", nullptr, "the host waits for the counts of rows"},
    {"mesh.expert_separate_comm", nullptr, "rows are exchanged in a process group of their own"},
    {"mesh.expert_overlap", expert_overlap},
    {"mesh.expert_rows", nullptr, "a row goes to each expert"},
    {"train.seq_len", training},
    {"train.batch_per_rank", training},
    {"train.batch_global", batch_global},
    {"train.accumulate", training},
    {"train.accumulate_mode", accumulate_mode},
    {"train.optimizer", optimizer},
    {"train.learning_rate", optimizer},
    {"train.beta1", optimizer},
    {"train.beta2", optimizer},
    {"train.epsilon", optimizer},
    {"train.weight_decay", optimizer},
    {"train.clip_norm", training},
    {"fsdp.strategy", strategy},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.forward_prefetch", nullptr, "the host runs ahead; lists of modules are set with expert parallelism only"},
    {"fsdp.backward_prefetch", nullptr, "one unit ahead (pre); lists of modules are set with expert parallelism only"},
    {"fsdp.all_gather_limit", nullptr, "gathers wait on the device for the copy-out before last"},
    {"fsdp.wrap", wrap},
    {"fsdp.head_unit", head_unit},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.gradient_scaling", gradient_scaling},
    {"fsdp.activation_checkpointing", checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
    {"fsdp.checkpoint_keeps", checkpoint_keeps},
    {"fsdp.cpu_offload", cpu_offload},
    {"nccl.register_buffers", register_buffers},
});

std::string toml(const ExportSource& s) {
  const config::Train& train = s.config.train;
  const config::Fsdp& fsdp = s.fsdp();
  const std::string expert =
      s.config.mesh.expert > 1 ? fmt::format("expert_parallel_degree = {}\n", s.config.mesh.expert) : "";
  std::string text = fmt::format(R"(
[training]
local_batch_size = {}
global_batch_size = {}
seq_len = {}
max_norm = {}
mixed_precision_param = "{}"
mixed_precision_reduce = "float32"
{}
[parallelism]
data_parallel_replicate_degree = {}
data_parallel_shard_degree = {}
{}fsdp_reshard_after_forward = "{}"

[activation_checkpoint]
)",
                                 train.batch_per_rank, global_batch(s), train.seq_len, max_norm(s), mixed_precision(s),
                                 s.offloads() ? "enable_cpu_offload = true\n" : "", s.config.mesh.replicate,
                                 s.config.mesh.shard, expert, reshard_setting(s));
  if (!fsdp.activation_checkpointing) {
    text += "mode = \"none\"\n";
  } else if (fsdp.checkpoint_every == 1 && fsdp.checkpoint_keeps == config::CheckpointKeeps::every_second_product) {
    text += "mode = \"selective\"\nselective_ac_option = \"op\"\n";
  } else if (fsdp.checkpoint_every == 1) {
    text += "mode = \"full\"\n";
  } else {
    text += fmt::format("mode = \"selective\"\nselective_ac_option = \"{}\"\n", fsdp.checkpoint_every);
  }
  if (train.optimizer != config::Optimizer::adamw) return text;
  return text +
         fmt::format("\n[optimizer]\nname = \"AdamW\"\nlr = {}\nbeta1 = {}\nbeta2 = {}\neps = {}\nweight_decay = {}\n",
                     train.learning_rate, train.beta1, train.beta2, train.epsilon, train.weight_decay);
}

/// Of torchtitan 0.3, which reads no file: one a line. Its optimizer is chosen in Python, and so is which operations of
/// a block are recomputed.
std::string arguments(const ExportSource& s) {
  const config::Train& train = s.config.train;
  std::string text = fmt::format(
      "--training.local_batch_size={}\n--training.global_batch_size={}\n--training.seq_len={}\n"
      "--training.max_norm={}\n--training.mixed_precision_param={}\n"
      "--parallelism.data_parallel_replicate_degree={}\n--parallelism.data_parallel_shard_degree={}\n"
      "--parallelism.fsdp_reshard_after_forward={}\n",
      train.batch_per_rank, global_batch(s), train.seq_len, max_norm(s), mixed_precision(s), s.config.mesh.replicate,
      s.config.mesh.shard, reshard_setting(s));
  if (s.config.nccl.register_buffers == config::NcclRegister::window) text += "--parallelism.enable_fsdp_symm_mem\n";
  if (s.offloads()) text += "--training.enable_cpu_offload\n";
  if (s.config.mesh.expert > 1) {
    text += fmt::format("--parallelism.expert_parallel_degree={}\n", s.config.mesh.expert);
  }
  const config::Fsdp& fsdp = s.fsdp();
  const bool selective = fsdp.checkpoint_keeps == config::CheckpointKeeps::every_second_product;
  return text + fmt::format("activation_checkpoint:{}\n", !fsdp.activation_checkpointing ? "none"
                                                          : selective                    ? "selective"
                                                                                         : "full");
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  return {{"torchtitan.toml", commented("#", notes) + toml(s)}, {"torchtitan_0.3.args", arguments(s)}};
}

std::string_view engine(const config::RunConfig& config) { return config.mesh.expert > 1 ? "torchtitan-moe" : "fsdp2"; }

}  // namespace titan
}  // namespace

Dialect torchtitan() {
  return {.name = "torchtitan",
          .system = "torchtitan 0.2 (TOML) and 0.3 (arguments)",
          .what = "a TOML file, and the arguments that newer versions take: torchtitan.toml, torchtitan_0.3.args",
          .engine = titan::engine,
          .rules = titan::kRules,
          .write = titan::write};
}

}  // namespace fsdpbench::dialects
