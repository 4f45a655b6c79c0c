#include "dialects/hugging_face.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <vector>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace hugging {

using config::AllGatherLimit;
using config::Prefetch;

bool first_version(const ExportSource& s) { return hugging_face_version(s.config) == 1; }

Said shard(const ExportSource& s) {
  if (!config::is_hybrid(s.fsdp().strategy)) return same();
  if (!first_version(s)) return written("parallelism_config");
  return roughly("HYBRID_SHARD: the ranks of one machine are a shard group");
}

Said forward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (prefetch.mode == Prefetch::Mode::implicit) return same();
  if (prefetch.mode == Prefetch::Mode::none) return lost("each unit is gathered as soon as the host reaches it");
  if (!first_version(s)) return lost("no list of modules (version 2): the host runs ahead");
  return is_one_unit_ahead(prefetch) ? written("forward_prefetch = true")
                                     : roughly("forward_prefetch = true, which is one unit ahead");
}

Said backward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().backward_prefetch;
  if (!first_version(s)) {
    return prefetch.mode == Prefetch::Mode::pre ? same() : lost("always one unit ahead (pre), version 2 has no choice");
  }
  const std::string word = fmt::format("backward_prefetch = {}", backward_prefetch_word(s));
  if (is_one_unit_ahead(prefetch) || prefetch.mode == Prefetch::Mode::pre || prefetch.mode == Prefetch::Mode::post ||
      prefetch.mode == Prefetch::Mode::none)
    return written(word);
  return roughly(word + ", which is one unit ahead");
}

Said wrap(const ExportSource& s) {
  switch (s.fsdp().wrap.mode) {
    case config::Wrap::Mode::block: return written("TRANSFORMER_BASED_WRAP");
    case config::Wrap::Mode::blocks: return lost("each block is a unit (TRANSFORMER_BASED_WRAP)");
    case config::Wrap::Mode::min_size:
      return roughly("SIZE_BASED_WRAP, which also splits a block whose parts are large");
    case config::Wrap::Mode::model: break;
  }
  return written("NO_WRAP");
}

Said head_unit(const ExportSource& s) {
  if (first_version(s)) return s.fsdp().head_unit ? lost("norm and head are in the root") : same();
  if (s.fsdp().head_unit)
    return roughly("norm and head are a unit that stays gathered after forward; the embedding is another");
  return lost("embedding, and norm with head, are units of their own; the latter stays gathered after forward");
}

Said param_dtype(const ExportSource& s) { return s.fsdp().param_dtype == DType::bf16 ? written("bf16") : same(); }

Said reduce_dtype(const ExportSource& s) {
  if (s.fsdp().reduce_dtype == s.fsdp().param_dtype) return same();
  return lost("as param_dtype, unless your script passes FullyShardedDataParallelPlugin a mixed_precision_policy");
}

Said checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing ? written("activation_checkpointing = true") : same();
}
Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return lost("every unit is checkpointed");
}

Said all_gather_limit(const ExportSource& s) {
  const AllGatherLimit& limit = s.fsdp().all_gather_limit;
  if (limit == s.reference.fsdp.all_gather_limit) return same();
  return lost(first_version(s)
                  ? "limit_all_gathers is on (fsdp1_queue:2); only a plugin made in your script turns it off"
                  : "gathers wait on the device for the copy-out before last");
}

Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  switch (s.config.train.accumulate_mode) {
    case config::AccumulateMode::no_sync: return same();
    case config::AccumulateMode::reduce_each:
      return yours("GradientAccumulationPlugin(sync_each_batch=True); without it only the last microbatch is reduced");
    case config::AccumulateMode::reduce_scatter_only: break;
  }
  return lost("the last microbatch alone is reduced, or with sync_each_batch each");
}

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.shard", shard},
    {"mesh.replicate", shard},
    {"train.accumulate_mode", accumulate_mode},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.all_gather_limit", all_gather_limit},
    {"fsdp.wrap", wrap},
    {"fsdp.head_unit", head_unit},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.activation_checkpointing", checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
});

}  // namespace hugging
}  // namespace

int hugging_face_version(const config::RunConfig& config) { return config.fsdp.layout == config::Layout::flat ? 1 : 2; }

std::string_view hugging_face_engine(const config::RunConfig& config) {
  return hugging_face_version(config) == 1 ? "fsdp1" : "fsdp2";
}

std::string_view wrap_policy(const ExportSource& s) {
  switch (s.fsdp().wrap.mode) {
    case config::Wrap::Mode::block:
    case config::Wrap::Mode::blocks: return "TRANSFORMER_BASED_WRAP";
    case config::Wrap::Mode::min_size: return "SIZE_BASED_WRAP";
    case config::Wrap::Mode::model: break;
  }
  return "NO_WRAP";
}

std::string_view reshard_word(const ExportSource& s) {
  const bool frees = frees_after_forward(s);
  if (hugging_face_version(s.config) == 2) return frees ? "true" : "false";
  if (s.fsdp().strategy == config::Strategy::no_shard) return "NO_SHARD";
  if (config::is_hybrid(s.fsdp().strategy)) return frees ? "HYBRID_SHARD" : "HYBRID_SHARD_ZERO2";
  return frees ? "FULL_SHARD" : "SHARD_GRAD_OP";
}

std::string_view backward_prefetch_word(const ExportSource& s) {
  const config::Prefetch::Mode mode = s.fsdp().backward_prefetch.mode;
  if (mode == config::Prefetch::Mode::none) return "NO_PREFETCH";
  return mode == config::Prefetch::Mode::post ? "BACKWARD_POST" : "BACKWARD_PRE";
}

Said sharding_said(const ExportSource& s, std::string_view word) {
  const bool first = hugging_face_version(s.config) == 1;
  if (first) return written(fmt::format("{} = {}", word, reshard_word(s)));
  if (s.fsdp().strategy == config::Strategy::no_shard)
    return lost(
        "it shards (version 2 has no NO_SHARD); use distributed_type MULTI_GPU, which is DistributedDataParallel");
  if (config::is_hybrid(s.fsdp().strategy)) return written("parallelism_config");
  return written(fmt::format("reshard_after_forward = {}", reshard_word(s)));
}

Said reshard_said(const ExportSource& s, std::string_view word) {
  using Mode = config::ReshardAfterForward::Mode;
  const bool first = hugging_face_version(s.config) == 1;
  const std::string setting = fmt::format("{} = {}", first ? word : "reshard_after_forward", reshard_word(s));
  switch (s.fsdp().reshard_after_forward.mode) {
    case Mode::automatic: return same();
    case Mode::never: return written(setting);
    case Mode::always:
      return roughly(first ? setting + ", which keeps the root"
                           : "true for blocks and embedding; norm and head are kept");
    case Mode::group: break;
  }
  return lost(first ? "a freed unit is gathered from the whole shard group again"
                    : "true or false only: a freed unit is gathered from the whole shard group again");
}

std::vector<KeyRule> with_hugging_face_rules(std::span<const KeyRule> own) {
  return joined_rules(own, hugging::kRules);
}

}  // namespace fsdpbench::dialects

// Words of Hugging Face's Trainer: TrainingArguments with an fsdp_config.

namespace fsdpbench::dialects {
namespace {
namespace trainer {

Said argument(const ExportSource&) { return written("an argument of TrainingArguments"); }

Said optimizer(const ExportSource& s) {
  return written(s.config.train.optimizer == config::Optimizer::sgd ? "optim=\"sgd\"" : "optim=\"adamw_torch_fused\"");
}

bool reduces_each(const config::Train& train) {
  return train.accumulate > 1 && train.accumulate_mode != config::AccumulateMode::no_sync;
}

Said accumulate_mode(const ExportSource& s) {
  if (!reduces_each(s.config.train)) return same();
  const std::string word = "accelerator_config: sync_each_batch";
  return s.config.train.accumulate_mode == config::AccumulateMode::reduce_each
             ? written(word)
             : roughly(word + ": replicas are reduced in each microbatch, too");
}

/// A variable of the environment that Accelerate reads: the Trainer hands no strategy on.
constexpr std::string_view kStrategy = "FSDP_SHARDING_STRATEGY";
Said strategy(const ExportSource& s) { return sharding_said(s, kStrategy); }
Said reshard_after_forward(const ExportSource& s) { return reshard_said(s, kStrategy); }

/// In fsdp_config; Accelerate's file calls it otherwise.
Said cpu_offload(const ExportSource& s) { return offloads_all(s, "cpu_offload = true"); }

Said all_gather_limit(const ExportSource& s) {
  const config::AllGatherLimit& limit = s.fsdp().all_gather_limit;
  if (limit == s.reference.fsdp.all_gather_limit) return same();
  if (hugging_face_version(s.config) == 2) return lost("gathers wait on the device for the copy-out before last");
  if (limit.mode == config::AllGatherLimit::Mode::unlimited) return written("limit_all_gathers = false");
  return lost("limit_all_gathers is on (fsdp1_queue:2)");
}

constexpr std::array kTraining = std::to_array<KeyRule>({
    {"train.batch_per_rank", argument},
    {"train.accumulate", argument},
    {"train.accumulate_mode", accumulate_mode},
    {"train.optimizer", optimizer},
    {"train.learning_rate", argument},
    {"train.beta1", argument},
    {"train.beta2", argument},
    {"train.epsilon", argument},
    {"train.weight_decay", argument},
    {"train.clip_norm", argument},
    {"fsdp.strategy", strategy},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.all_gather_limit", all_gather_limit},
    {"fsdp.cpu_offload", cpu_offload},
});

std::span<const KeyRule> rules() {
  static const std::vector<KeyRule> kRules = with_hugging_face_rules(kTraining);
  return kRules;
}

std::string fsdp_config(const ExportSource& s) {
  const config::Fsdp& fsdp = s.fsdp();
  const int version = hugging_face_version(s.config);
  std::string text = "FSDP_CONFIG = {\n";
  const auto entry = [&](std::string_view key, std::string_view value) {
    text += fmt::format("    \"{}\": {},\n", key, value);
  };
  entry("version", std::to_string(version));
  if (version == 2) entry("reshard_after_forward", python(reshard_word(s) == "true"));
  entry("auto_wrap_policy", fmt::format("\"{}\"", wrap_policy(s)));
  if (fsdp.wrap.mode == config::Wrap::Mode::min_size) entry("min_num_params", std::to_string(fsdp.wrap.parameters));
  if (version == 1) {
    entry("backward_prefetch", fmt::format("\"{}\"", backward_prefetch_word(s)));
    entry("forward_prefetch", python(prefetches_forward(s)));
    entry("use_orig_params", "True");
    if (fsdp.all_gather_limit.mode == config::AllGatherLimit::Mode::unlimited) entry("limit_all_gathers", "False");
  }
  entry("activation_checkpointing", python(fsdp.activation_checkpointing));
  if (s.offloads()) entry("cpu_offload", "True");
  entry("state_dict_type", "\"SHARDED_STATE_DICT\"");
  return text + "}\n";
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  const config::Train& train = s.config.train;
  const bool mesh = hugging_face_version(s.config) == 2 && config::is_hybrid(s.fsdp().strategy);
  std::string text = commented("#", notes);
  const bool first = hugging_face_version(s.config) == 1;
  text += first ? "\nimport os\n\n" : "\n";
  text += mesh ? "from accelerate import ParallelismConfig\n" : "";
  text += "from transformers import TrainingArguments\n\n";
  text += fsdp_config(s);
  text += "\n\ndef training_arguments(output_dir, **others):\n";
  if (first) {
    text +=
        "    # Accelerate's: fsdp_config has a reshard_after_forward, but a strategy that nobody sets overrides it.\n";
    text += fmt::format("    os.environ[\"FSDP_SHARDING_STRATEGY\"] = \"{}\"\n", reshard_word(s));
  }
  text += "    return TrainingArguments(\n        output_dir=output_dir,\n";
  const auto set = [&](std::string_view name, std::string_view value) {
    text += fmt::format("        {}={},\n", name, value);
  };
  set("fsdp", "True");
  set("fsdp_config", "dict(FSDP_CONFIG)");
  if (mesh) {
    set("parallelism_config", fmt::format("ParallelismConfig(dp_replicate_size={}, dp_shard_size={})",
                                          s.config.mesh.replicate, s.config.mesh.shard));
  }
  set("bf16", python(s.fsdp().param_dtype == DType::bf16));
  set("per_device_train_batch_size", std::to_string(train.batch_per_rank));
  set("gradient_accumulation_steps", std::to_string(train.accumulate));
  if (reduces_each(train)) {
    set("accelerator_config", "{\"gradient_accumulation_kwargs\": {\"sync_each_batch\": True}}");
  }
  const bool sgd = train.optimizer == config::Optimizer::sgd;
  set("optim", sgd ? "\"sgd\"" : "\"adamw_torch_fused\"");
  set("learning_rate", fmt::format("{}", train.learning_rate));
  if (!sgd) {
    set("adam_beta1", fmt::format("{}", train.beta1));
    set("adam_beta2", fmt::format("{}", train.beta2));
    set("adam_epsilon", fmt::format("{}", train.epsilon));
  }
  set("weight_decay", fmt::format("{}", train.weight_decay));
  set("max_grad_norm", fmt::format("{}", train.clip_norm));
  set("lr_scheduler_type", "\"constant\"");
  return {{"hf_trainer.py", text + "        **others,\n    )\n"}};
}

}  // namespace trainer
}  // namespace

Dialect hf_trainer() {
  return {.name = "hf-trainer",
          .system = "the Trainer of Hugging Face Transformers 5.23",
          .what = "TrainingArguments with their fsdp_config: hf_trainer.py",
          .engine = hugging_face_engine,
          .rules = trainer::rules(),
          .write = trainer::write};
}

}  // namespace fsdpbench::dialects

// Words of Hugging Face Accelerate: the YAML that `accelerate launch --config_file` reads.

namespace fsdpbench::dialects {
namespace {
namespace accelerate_yaml {

Said processes(const ExportSource&) { return written("num_processes"); }
constexpr std::string_view kStrategy = "fsdp_sharding_strategy";
Said strategy(const ExportSource& s) { return sharding_said(s, kStrategy); }
Said reshard_after_forward(const ExportSource& s) { return reshard_said(s, kStrategy); }
Said cpu_offload(const ExportSource& s) { return offloads_all(s, "offload_params = true"); }

constexpr std::array kOwn = std::to_array<KeyRule>({{"mesh.ranks", processes},
                                                    {"fsdp.strategy", strategy},
                                                    {"fsdp.reshard_after_forward", reshard_after_forward},
                                                    {"fsdp.cpu_offload", cpu_offload}});

std::span<const KeyRule> rules() {
  static const std::vector<KeyRule> kRules = with_hugging_face_rules(kOwn);
  return kRules;
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  const config::Fsdp& fsdp = s.fsdp();
  const int version = hugging_face_version(s.config);
  std::string text = commented("#", notes);
  text += fmt::format(R"(
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 1  # and machine_rank, main_process_ip, main_process_port for more
num_processes: {}
mixed_precision: {}
fsdp_config:
  fsdp_version: {}
  {}: {}
  fsdp_auto_wrap_policy: {}
)",
                      s.config.mesh.ranks, fsdp.param_dtype == DType::bf16 ? "bf16" : "'no'", version,
                      version == 1 ? kStrategy : "fsdp_reshard_after_forward", reshard_word(s), wrap_policy(s));
  if (fsdp.wrap.mode == config::Wrap::Mode::min_size)
    text += fmt::format("  fsdp_min_num_params: {}\n", fsdp.wrap.parameters);
  if (version == 1) {
    text += fmt::format("  fsdp_backward_prefetch: {}\n  fsdp_forward_prefetch: {}\n  fsdp_use_orig_params: true\n",
                        backward_prefetch_word(s), prefetches_forward(s));
  }
  text += fmt::format(
      "  fsdp_activation_checkpointing: {}\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_offload_params: {}\n",
      fsdp.activation_checkpointing, s.offloads());
  if (version == 2 && config::is_hybrid(fsdp.strategy)) {
    text += fmt::format(
        "parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n  parallelism_config_dp_shard_size: {}\n",
        s.config.mesh.replicate, s.config.mesh.shard);
  }
  return {{"accelerate.yaml", text}};
}

}  // namespace accelerate_yaml
}  // namespace

Dialect accelerate() {
  return {.name = "accelerate",
          .system = "Hugging Face Accelerate 1.15",
          .what = "a YAML file for accelerate launch: accelerate.yaml",
          .engine = hugging_face_engine,
          .rules = accelerate_yaml::rules(),
          .write = accelerate_yaml::write};
}

}  // namespace fsdpbench::dialects
