// Words of Hugging Face's Trainer: TrainingArguments with an fsdp_config.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "config/validate.h"
#include "dialects/hugging_face.h"
#include "dialects/key_rules.h"

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
