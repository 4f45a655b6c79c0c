// Settings of other systems as keys, and that what export writes comes back.
#include "dialects/make_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/presets.h"
#include "config/support.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "support/random_config.h"

namespace fsdpbench::dialects {
namespace {

using config::Value;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

/// The files that import reads, of all that export writes.
const std::map<std::string, std::string>& readable() {
  static const std::map<std::string, std::string> kFiles{{"accelerate", "accelerate.yaml"},
                                                         {"deepspeed", "deepspeed.json"},
                                                         {"megatron-fsdp", "megatron_lm.sh"},
                                                         {"torchtitan", "torchtitan.toml"}};
  return kFiles;
}

/// A file without what is for people.
std::string body(const std::string& text) {
  if (text.starts_with("{")) {
    nlohmann::json json = nlohmann::json::parse(text);
    json.erase("_comment");
    return json.dump(1);
  }
  std::istringstream in(text);
  std::string found;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("#")) found += line + '\n';
  }
  return found;
}

std::string file_of(const Export& made, const std::string& name) {
  for (const ExportFile& file : made.files) {
    if (file.name == name) return file.text;
  }
  return "";
}

/// Keys that the system says as they are, and that are not said alike by other values of others.
const std::set<std::string, std::less<>>& plain_keys() {
  static const std::set<std::string, std::less<>> kKeys{"train.seq_len",
                                                        "train.batch_per_rank",
                                                        "train.accumulate",
                                                        "train.optimizer",
                                                        "train.learning_rate",
                                                        "train.beta1",
                                                        "train.beta2",
                                                        "train.epsilon",
                                                        "train.weight_decay",
                                                        "train.clip_norm",
                                                        "fsdp.param_dtype",
                                                        "fsdp.reduce_dtype",
                                                        "fsdp.wrap",
                                                        "fsdp.activation_checkpointing",
                                                        "fsdp.reduce_bucket",
                                                        "fsdp.reduce_lane",
                                                        "fsdp.max_live_parameters",
                                                        "fsdp.separate_reduce_scatter_comm",
                                                        "fsdp.gradient_scaling",
                                                        "fsdp.cpu_offload"};
  return kKeys;
}

/// Exports, imports, exports again. The model and the ranks are told, as the files of these systems do not have them.
void expect_back(const std::string& system, const config::RunConfig& config) {
  const Dialect& target = find_export_target(system);
  const std::string name = readable().at(system);
  const Export made = make_export(target, config);
  const std::string text = file_of(made, name);
  const Import import = make_import({{name, text}}, {.ranks = config.mesh.ranks, .layers = config.model.layers});
  config::RunConfig base;
  base.model = config.model;
  base.train.seq_len = config.train.seq_len;
  base.train.batch_per_rank = config.train.batch_per_rank;
  config::RunConfig back = imported(import, base);
  try {
    config::validate(back);
  } catch (const ConfigError& error) {
    ADD_FAILURE() << system << ": " << error.what() << "\n" << text;
    return;
  }
  EXPECT_EQ(body(file_of(make_export(target, back), name)), body(text)) << system;
  for (const KeyFate& key : made.keys) {
    if (key.said.fate != Fate::written || !plain_keys().contains(key.key)) continue;
    // Without ZeRO DeepSpeed's buckets are not in its file.
    if (key.key.starts_with("fsdp.reduce_") && text.find("\"stage\": 0") != std::string::npos) continue;
    EXPECT_EQ(config::to_toml(config::find_field(key.key)->write(back)), key.value) << system << ": " << key.key;
  }
}

TEST(Import, WhatIsExportedComesBack) {
  std::mt19937 random(11);
  std::map<std::string, int> compared;
  int failed = 0;
  for (int i = 0; i < 300; ++i) {
    config::RunConfig config = fsdpbench::testing::random_config(random);
    config.train.optimizer = config::Optimizer::adamw;  // the one that all systems have
    config.mesh.tensor = 1;
    if (config.model.layers == 1) config.fsdp.checkpoint_every = 1;  // every second block of one is every block
    try {
      config::validate(config);
    } catch (const ConfigError&) {
      continue;  // keys that contradict each other
    }
    // One shard: what is split over nobody is no_shard in some systems.
    if (config.fsdp.strategy != config::Strategy::no_shard && config.mesh.shard == 1) continue;
    for (const auto& [system, file] : readable()) {
      expect_back(system, config);
      ++compared[system];
      failed += ::testing::Test::HasFailure() ? 1 : 0;
      if (failed > 20) return;
    }
  }
  for (const auto& [system, count] : compared) EXPECT_GT(count, 50) << system;
}

TEST(Import, WhatIsExportedOfEachPresetComesBack) {
  for (const std::string& preset : config::fsdp_preset_names()) {
    config::RunConfig config;
    for (const auto& [key, value] : config::fsdp_preset(preset)) config::find_field(key)->read(config, value);
    config.fsdp.preset = preset;
    config.mesh.ranks = 8;
    config.train.accumulate = 2;
    if (preset == "torchtitan-moe") {
      config.model.experts = 8;
      config.model.active_experts = 2;
      config.mesh.expert = 4;
    }
    config::validate(config);
    for (const auto& [system, file] : readable()) expect_back(system, config);
  }
}

Value of(const Import& import, std::string_view key) {
  for (const auto& [name, value] : import.keys) {
    if (name == key) return value;
  }
  return std::string("(not set)");
}
Value text(const char* value) { return std::string(value); }
Value number(std::int64_t value) { return value; }

TEST(Import, AModelAndDeepSpeedsSettingsAreOneProfile) {
  const Import import =
      make_import({{"config.json", R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "attention_bias": false})"},
                   {"ds.json", R"({"train_micro_batch_size_per_gpu": "auto", "train_batch_size": 64,
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7, "offload_optimizer": {"device": "cpu"},
    "round_robin_gradients": true}})"}},
                  {.ranks = 16, .layers = {}});
  config::RunConfig config = imported(import, {});
  config::validate(config);
  const config::RunConfig stored = config::load_profile(FSDPBENCH_PROFILES "/runs/llama3-8b-emulated.toml");
  EXPECT_EQ(config.model.layers, stored.model.layers);
  EXPECT_EQ(config.model.ffn_width, stored.model.ffn_width);
  EXPECT_EQ(config.model.kv_heads, stored.model.kv_heads);
  EXPECT_EQ(config.model.vocab, stored.model.vocab);
  EXPECT_EQ(of(import, "fsdp.preset"), text("deepspeed-z3"));
  EXPECT_EQ(of(import, "fsdp.forward_prefetch"), text("rate:50000000"));
  EXPECT_EQ(of(import, "fsdp.cpu_offload"), text("optimizer"));
  EXPECT_EQ(of(import, "fsdp.reduce_dtype"), text("bf16"));
  EXPECT_EQ(of(import, "mesh.ranks"), number(16));
  EXPECT_THAT(import.unread, Contains("train_micro_batch_size_per_gpu = auto"));
  EXPECT_THAT(import.unread, Contains("zero_optimization.round_robin_gradients = true"));
  EXPECT_THAT(import.unread, Contains(HasSubstr("a global batch of 64")));
  EXPECT_EQ(import.unread.size(), 3U) << import.unread.front();
}

TEST(Import, ExpertsOfTransformersAndTheirRouters) {
  const std::string size = R"("num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 32, "vocab_size": 99,)";
  const auto read = [&](const std::string& rest) { return make_import({{"config.json", "{" + size + rest + "}"}}); };
  const Import qwen = read(R"("model_type": "qwen3_moe", "moe_intermediate_size": 16, "num_experts": 8,
    "num_experts_per_tok": 2, "norm_topk_prob": false, "decoder_sparse_step": 1, "router_aux_loss_coef": 0.5,
    "output_router_logits": true)");
  EXPECT_EQ(of(qwen, "model.experts"), number(8));
  EXPECT_EQ(of(qwen, "model.active_experts"), number(2));
  EXPECT_EQ(of(qwen, "model.router_normalize"), Value(false));
  EXPECT_EQ(of(qwen, "model.router_aux_loss"), Value(0.5));
  EXPECT_THAT(qwen.unread, ::testing::ElementsAre("the number of ranks: --ranks"));
  // Without output_router_logits transformers adds no loss to balance them.
  const Import mixtral = read(R"("model_type": "mixtral", "intermediate_size": 16, "num_local_experts": 8,
    "num_experts_per_tok": 2, "router_aux_loss_coef": 0.5)");
  EXPECT_EQ(of(mixtral, "model.router_normalize"), Value(true));
  EXPECT_EQ(of(mixtral, "model.router_score"), text("softmax"));
  EXPECT_EQ(of(mixtral, "model.router_aux_loss"), text("(not set)"));
  const Import deepseek = read(R"("model_type": "deepseek_v3", "moe_intermediate_size": 16, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "scoring_func": "sigmoid", "n_shared_experts": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 8, "v_head_dim": 4, "num_key_value_heads": 32)");
  EXPECT_EQ(of(deepseek, "model.router_score"), text("sigmoid"));
  EXPECT_EQ(of(deepseek, "model.kv_heads"), number(2));
  EXPECT_EQ(of(deepseek, "model.head_dim"), number(4));
  EXPECT_THAT(deepseek.unread, Contains(HasSubstr("first_k_dense_replace = 1")));
  EXPECT_EQ(of(deepseek, "model.shared_experts"), number(1));
  const Import qwen2 = read(R"("model_type": "qwen2_moe", "moe_intermediate_size": 1408, "num_experts": 60,
    "num_experts_per_tok": 4, "shared_expert_intermediate_size": 5632)");
  EXPECT_EQ(of(qwen2, "model.shared_experts"), number(4));
  EXPECT_THAT(qwen2.unread, Contains(HasSubstr("shared_expert_gate")));
  EXPECT_THAT(deepseek.unread, Contains(HasSubstr("kv_lora_rank = 8: latent attention")));
}

/// What LoraConfig.save_pretrained of peft 0.21.2 wrote.
constexpr const char* kAllProducts =
    R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
    "base_model_name_or_path": null, "bias": "none", "corda_config": null, "ensure_weight_tying": false,
    "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": false,
    "init_lora_weights": true, "kasa_config": null, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 32, "lora_bias": false,
    "lora_dropout": 0.05, "lora_ga_config": null, "megatron_config": null, "megatron_core":
    "megatron.core", "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA",
    "peft_version": "0.21.2", "qalora_group_size": 16, "r": 16, "rank_pattern": {}, "revision": null,
    "target_modules": "all-linear", "target_parameters": null, "task_type": "CAUSAL_LM",
    "trainable_token_indices": null, "use_bdlora": null, "use_dora": false, "use_qalora": false,
    "use_rslora": false, "velora_config": null})";
constexpr const char* kSomeProducts =
    R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
    "base_model_name_or_path": null, "bias": "none", "corda_config": null, "ensure_weight_tying": false,
    "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": false,
    "init_lora_weights": true, "kasa_config": null, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": [4, 5, 6, 7], "loftq_config": {}, "lora_alpha": 16, "lora_bias": false,
    "lora_dropout": 0.0, "lora_ga_config": null, "megatron_config": null, "megatron_core":
    "megatron.core", "modules_to_save": ["lm_head"], "monteclora_config": null, "peft_type": "LORA",
    "peft_version": "0.21.2", "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "revision": null,
    "target_modules": ["q_proj", "v_proj"], "target_parameters": null, "task_type": null,
    "trainable_token_indices": null, "use_bdlora": null, "use_dora": true, "use_qalora": false,
    "use_rslora": true, "velora_config": null})";

TEST(Import, AdaptersOfPeft) {
  const Import all = make_import({{"adapter_config.json", kAllProducts}}, {.ranks = 8, .layers = {}});
  EXPECT_EQ(of(all, "model.lora_rank"), number(16));
  EXPECT_EQ(of(all, "model.lora_alpha"), Value(32.0));
  EXPECT_EQ(of(all, "model.trainable"), text("(not set)"));
  EXPECT_THAT(all.unread, ::testing::ElementsAre("lora_dropout = 0.05: adapters have no dropout here"));
  const Import some = make_import({{"adapter_config.json", kSomeProducts}}, {.ranks = 8, .layers = {}});
  EXPECT_EQ(of(some, "model.lora_rank"), number(8));
  EXPECT_NEAR(std::get<double>(of(some, "model.lora_alpha")), 16 * std::sqrt(8.0), 1e-12) << "use_rslora";
  EXPECT_EQ(of(some, "model.trainable"), text("blocks:4-7"));
  EXPECT_THAT(some.unread, ::testing::UnorderedElementsAre(
                               "target_modules = q_proj, v_proj: here all matrix products of a block have adapters",
                               "use_dora = true", "modules_to_save.0 = lm_head"));
  const Import gaps = make_import({{"adapter_config.json", R"({"peft_type": "LORA", "r": 4,
    "target_modules": "all-linear", "layers_to_transform": [1, 3]})"}});
  EXPECT_THAT(gaps.unread, Contains(HasSubstr("layers_to_transform = 1, 3: blocks that are no neighbours")));
  const Import other = make_import({{"adapter_config.json", R"({"peft_type": "IA3"})"}});
  EXPECT_THAT(other.unread, Contains("peft_type = IA3: of peft's adapters LORA alone is read"));
}

TEST(Import, TheTextOfAModelOfImagesIsRead) {
  const Import import = make_import({{"config.json", R"({"model_type": "llama4", "vision_config": {"hidden_size": 7},
    "text_config": {"model_type": "llama4_text", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "num_local_experts": 8, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}})"}});
  EXPECT_EQ(of(import, "model.layers"), number(3));
  EXPECT_EQ(of(import, "model.router_score"), text("sigmoid"));
  EXPECT_EQ(of(import, "model.shared_experts"), number(1));
  EXPECT_THAT(import.unread, Contains(HasSubstr("interleave_moe_layer_step = 2")));
  EXPECT_THAT(import.unread, Contains(HasSubstr("text_config")));
}

TEST(Import, ExpertParallelismOfTorchtitanAndMegatron) {
  const std::string parallelism = "[parallelism]\ndata_parallel_shard_degree = 8\nexpert_parallel_degree = ";
  const Import titan = make_import({{"job.toml", parallelism + "4\n"}});
  EXPECT_EQ(of(titan, "mesh.expert"), number(4));
  EXPECT_EQ(of(titan, "fsdp.preset"), text("torchtitan-moe"));
  EXPECT_EQ(of(make_import({{"job.toml", parallelism + "1\n"}}), "fsdp.preset"), text("fsdp2"));
  const Import megatron =
      make_import({{"run.sh",
                    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --num-experts 8 "
                    "--moe-router-topk 2 --moe-router-score-function sigmoid --expert-model-parallel-size 4 "
                    "--moe-ffn-hidden-size 16 --moe-shared-expert-intermediate-size 32 --moe-shared-expert-overlap "
                    "--moe-router-bias-update-rate 0.001"}});
  EXPECT_EQ(of(megatron, "mesh.expert"), number(4));
  EXPECT_EQ(of(megatron, "model.router_score"), text("sigmoid"));
  EXPECT_EQ(of(megatron, "model.shared_experts"), number(2));
  EXPECT_EQ(of(megatron, "mesh.expert_overlap"), text("both"));
  EXPECT_THAT(megatron.unread, Contains(HasSubstr("moe-router-bias-update-rate = 0.001")));
  const std::string experts = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --num-experts 8 ";
  const Import limited =
      make_import({{"run.sh", experts + "--moe-expert-capacity-factor 1.25 --moe-token-drop-policy position "
                                        "--moe-pad-expert-input-to-capacity"}});
  EXPECT_THAT(limited.unread, Contains("--moe-expert-capacity-factor 1.25: experts take all rows here"));
  EXPECT_THAT(limited.unread, Contains(HasSubstr("moe-pad-expert-input-to-capacity")));
  for (const char* none : {"--moe-expert-capacity-factor -1", "--moe-token-drop-policy probs"}) {
    const Import all = make_import({{"run.sh", experts + none}});
    EXPECT_THAT(all.unread, ::testing::Not(Contains(HasSubstr("moe-")))) << none;
  }
  const Import pairs = make_import({{"run.sh",
                                     "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --num-experts 8 "
                                     "--expert-model-parallel-size 4 --overlap-moe-expert-parallel-comm"}});
  EXPECT_THAT(pairs.unread, Contains(HasSubstr("beside the backward of another")));
}

TEST(Import, ContextParallelismOfTorchtitanAndMegatron) {
  const std::string common =
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --global-batch-size 8 "
      "--micro-batch-size 1 --context-parallel-size 4 --data-parallel-sharding-strategy optim_grads_params ";
  const auto megatron = [&](const std::string& more) {
    return make_import({{"run.sh", common + more}}, {.ranks = 8, .layers = {}});
  };
  EXPECT_EQ(of(megatron(""), "mesh.context"), number(4));
  EXPECT_EQ(of(megatron(""), "mesh.context_method"), text("ring")) << "--cp-comm-type is p2p";
  EXPECT_EQ(of(megatron(""), "train.accumulate"), number(4)) << "2 ranks see different samples";
  EXPECT_EQ(of(megatron("--cp-comm-type all_gather"), "mesh.context_method"), text("all_gather"));
  for (const char* type : {"a2a", "a2a+p2p"}) {
    const Import heads = megatron(std::string("--cp-comm-type ") + type);
    EXPECT_EQ(of(heads, "mesh.context_method"), text("all_gather"));
    EXPECT_THAT(heads.unread,
                Contains(HasSubstr(std::string("--cp-comm-type ") + type + ": all_gather stands for it")));
  }
  EXPECT_THAT(megatron("--cp-comm-type p2p a2a --bf16").unread,
              Contains("--cp-comm-type p2p a2a: the first word stands for all layers"));
  EXPECT_THAT(megatron("--cp-comm-type p2p p2p").unread, ::testing::Not(Contains(HasSubstr("cp-comm-type"))));
  EXPECT_THAT(make_import({{"run.sh", "--num-layers 2 --context-parallel-size 4"}}).unread,
              Contains("context-parallel-size = 4: mesh.context does not go with fsdp.strategy = no_shard"));
  const Import both = megatron("--tensor-model-parallel-size 2");
  EXPECT_EQ(of(both, "mesh.context"), text("(not set)"));
  EXPECT_THAT(both.unread, Contains("context-parallel-size = 4: mesh.context does not go with mesh.tensor"));

  const std::string parallelism =
      "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
      "context_parallel_degree = 2\n";
  const Import titan = make_import({{"job.toml", parallelism}});
  EXPECT_EQ(of(titan, "mesh.context"), number(2));
  EXPECT_EQ(of(titan, "mesh.context_method"), text("(not set)"));
  EXPECT_EQ(of(titan, "mesh.ranks"), number(16));
  EXPECT_EQ(of(titan, "mesh.shard"), number(8)) << "its mesh dp_shard_cp";
  const Import rotates = make_import({{"job.toml", parallelism + "context_parallel_rotate_method = \"alltoall\"\n"}});
  EXPECT_EQ(of(rotates, "mesh.context_method"), text("ring"));
  EXPECT_THAT(rotates.unread, Contains(HasSubstr("stands for PyTorch's")));
}

TEST(Import, TorchtitansArgumentsAreItsTomls) {
  const std::string toml =
      "[training]\nlocal_batch_size = 2\nglobal_batch_size = 32\nseq_len = 8192\n"
      "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
      "[activation_checkpoint]\nmode = \"full\"\n[model]\nflavor = \"8B\"\n";
  const std::string arguments =
      "--training.local_batch_size=2 --training.global_batch_size 32 \\\n--training.seq_len=8192\n"
      "--parallelism.data_parallel_replicate_degree=2\n"
      "--parallelism.data_parallel_shard_degree=4\n--model.flavor=8B\nactivation_checkpoint:full\n";
  const Import of_file = make_import({{"job.toml", toml}});
  const Import of_arguments = make_import({{"job.args", arguments}});
  EXPECT_EQ(of_file.keys, of_arguments.keys);
  EXPECT_EQ(of_file.unread, of_arguments.unread);
  EXPECT_THAT(of_file.unread, ::testing::ElementsAre("model.flavor = 8B"));
  EXPECT_EQ(of(of_file, "fsdp.strategy"), text("hybrid_shard"));
  EXPECT_EQ(of(of_file, "train.accumulate"), number(2));
  EXPECT_EQ(of(of_file, "mesh.ranks"), number(8));
}

TEST(Import, MegatronRecomputesModulesOfALayer) {
  const auto with = [](const std::string& flags) {
    const std::string text =
        "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --use-megatron-fsdp "
        "--data-parallel-sharding-strategy optim_grads_params --bf16 " +
        flags + '\n';
    return make_import({{"megatron.args", text}}, {.ranks = 8, .layers = {}});
  };
  const auto selective = [&](const std::string& modules) {
    return with("--recompute-granularity selective " + modules);
  };
  const std::string experts = " --num-experts 8 --moe-router-topk 2";
  EXPECT_EQ(of(selective(""), "fsdp.checkpoint_keeps"), text("all_but_attention")) << "core_attn is its default";
  EXPECT_EQ(of(selective("--recompute-modules mlp"), "fsdp.checkpoint_keeps"), text("all_but_feed_forward"));
  EXPECT_EQ(of(selective("--recompute-modules moe" + experts), "fsdp.checkpoint_keeps"), text("all_but_feed_forward"));
  EXPECT_EQ(of(selective("--recompute-modules moe" + experts), "fsdp.activation_checkpointing"), Value(true));
  EXPECT_EQ(of(with("--recompute-granularity full --recompute-method uniform"), "fsdp.checkpoint_keeps"),
            text("(not set)"));
  const Import two = selective("--recompute-modules layernorm moe" + experts);
  EXPECT_EQ(of(two, "fsdp.checkpoint_keeps"), text("all_but_feed_forward"));
  EXPECT_THAT(two.unread, Contains("--recompute-modules layernorm: what it saves is kept here"));
  const Import others = selective("--recompute-modules moe_act layernorm" + experts);
  EXPECT_EQ(of(others, "fsdp.activation_checkpointing"), text("(not set)"));
  EXPECT_THAT(others.unread, Contains("--recompute-modules moe_act layernorm: what they save is kept here"));
  const Import split = selective("--tensor-model-parallel-size 2 --recompute-modules mlp");
  EXPECT_EQ(of(split, "fsdp.activation_checkpointing"), Value(true));
  EXPECT_THAT(split.unread, Contains("--recompute-modules mlp: with mesh.tensor whole layers stand for it"));
  EXPECT_THAT(selective("--tensor-model-parallel-size 2").unread,
              Contains("--recompute-modules core_attn: with mesh.tensor nothing is recomputed for it"));
}

TEST(Import, TorchtitansSelectiveCheckpointingKeepsEverySecondProduct) {
  const auto import_of = [](const std::string& option) {
    return make_import({{"job.toml",
                         "[training]\nlocal_batch_size = 2\nseq_len = 8192\n[parallelism]\n"
                         "data_parallel_shard_degree = 4\n[activation_checkpoint]\nmode = \"selective\"\n" +
                             option}});
  };
  const Import by_operator = import_of("selective_ac_option = \"op\"\n"),
               by_block = import_of("selective_ac_option = \"2\"\n");
  EXPECT_EQ(of(by_operator, "fsdp.checkpoint_keeps"), text("every_second_product"));
  EXPECT_EQ(of(import_of(""), "fsdp.checkpoint_keeps"), text("every_second_product")) << "its default";
  EXPECT_EQ(of(by_block, "fsdp.checkpoint_every"), number(2));
  EXPECT_EQ(of(by_block, "fsdp.checkpoint_keeps"), text("(not set)"));
}

TEST(Import, TorchtitanCompilesTheLossWhereItsComponentsNameIt) {
  const auto import_of = [](const std::string& lines) {
    return make_import({{"job.toml", "[training]\nlocal_batch_size = 2\nseq_len = 8192\n" + lines +
                                         "[activation_checkpoint]\nmode = \"full\"\n"}},
                       {.ranks = 8, .layers = {}});
  };
  const Value yes = true;
  const Import blocks = import_of("[compile]\nenable = true\ncomponents = [\"model\"]\n");
  EXPECT_EQ(of(blocks, "simulate.compiled"), yes);
  EXPECT_EQ(of(blocks, "simulate.eager_loss"), yes);
  EXPECT_THAT(blocks.unread, ::testing::IsEmpty());
  for (const char* components : {"", "components = [\"model\", \"loss\"]\n", "components = \"model,loss\"\n"}) {
    const Import both = import_of(std::string("[compile]\nenable = true\n") + components);
    EXPECT_EQ(of(both, "simulate.compiled"), yes);
    EXPECT_EQ(of(both, "simulate.eager_loss"), text("(not set)"));
  }
  const Import loss = import_of("[compile]\nenable = true\ncomponents = [\"loss\"]\n");
  EXPECT_EQ(of(loss, "simulate.compiled"), text("(not set)"));
  EXPECT_EQ(of(loss, "simulate.fused_loss"), yes);
  EXPECT_EQ(of(import_of("[compile]\nenable = false\n"), "simulate.eager_loss"), yes);
  EXPECT_EQ(of(import_of(""), "simulate.eager_loss"), text("(not set)")) << "its version is not known";
  const Import split = import_of("[parallelism]\ntensor_parallel_degree = 2\n[compile]\nenable = false\n");
  EXPECT_EQ(of(split, "simulate.eager_loss"), text("(not set)")) << "its loss is over parts of the logits";
  const Import old = make_import({{"job.toml",
                                   "[training]\nlocal_batch_size = 2\ncompile = true\n"
                                   "[activation_checkpoint]\nmode = \"full\"\n"}},
                                 {.ranks = 8, .layers = {}});
  EXPECT_EQ(of(old, "simulate.compiled"), yes);
  EXPECT_THAT(old.unread, ::testing::ElementsAre(HasSubstr("from 2024-12-18 to 2025-04-02")));
}

TEST(Import, AcceleratesYamlWithQuotesListsAndComments) {
  const Import import = make_import({{"a.yaml",
                                      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP # x\nfsdp_config:\n"
                                      "  fsdp_version: 1\n  fsdp_sharding_strategy: 'HYBRID_SHARD'\n"
                                      "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 1000\n"
                                      "  fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_new: 3\n"
                                      "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\nextra:\n- one\n"}});
  EXPECT_EQ(of(import, "fsdp.strategy"), text("hybrid_shard"));
  EXPECT_EQ(of(import, "mesh.shard"), number(8));
  EXPECT_EQ(of(import, "fsdp.wrap"), text("size:1000"));
  EXPECT_EQ(of(import, "fsdp.backward_prefetch"), text("post"));
  EXPECT_THAT(import.unread, ::testing::ElementsAre("extra.0 = one", "fsdp_config.fsdp_new = 3"));
}

TEST(Import, MegatronsArgumentsHaveAModel) {
  const Import import = make_import(
      {{"args.sh",
        "ARGS=(\n --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32\n"
        " --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear\n"
        " --untie-embeddings-and-output-weights --position-embedding-type rope --max-position-embeddings 8192\n"
        " --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --bf16\n"
        " --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --pipeline-model-parallel-size 2\n)\n"}},
      {.ranks = 64, .layers = {}});
  EXPECT_EQ(of(import, "model.kv_heads"), number(8));
  EXPECT_EQ(of(import, "model.bias"), Value(false));
  EXPECT_EQ(of(import, "train.accumulate"), number(2));
  EXPECT_EQ(of(import, "fsdp.preset"), text("megatron-v1"));
  EXPECT_THAT(import.unread, ::testing::ElementsAre("pipeline-model-parallel-size = 2"));
}

TEST(Import, FilesThatAreNoneOfTheseAreRefused) {
  const auto refused = [](const std::string& text) {
    return config::config_error([&] { make_import({{"file", text}}); });
  };
  EXPECT_THAT(refused("{}"), HasSubstr("file: of no system that can be imported. Those are: Hugging Face"));
  EXPECT_THAT(refused("{\"model_type\": "), HasSubstr("file: no JSON"));
  EXPECT_THAT(refused("{\"model_type\": \"clip\", \"hidden_size\": 4}"), HasSubstr("file: no num_hidden_layers"));
  EXPECT_THAT(refused("[mesh]\nranks = 4\n"), HasSubstr("of no system"));
  EXPECT_THAT(refused("[mesh\nranks = 4\n"), HasSubstr("file:1: no TOML"));
  EXPECT_THAT(refused("distributed_type: FSDP\nnothing\n"), HasSubstr("file:2: \"nothing\" is no \"key: value\""));
  EXPECT_THAT(refused("distributed_type: DEEPSPEED\n"), HasSubstr("import its JSON"));
  EXPECT_THAT(refused("{\"zero_optimization\": {\"stage\": 4}}"),
              HasSubstr("zero_optimization.stage = 4: 0, 1, 2 or 3"));
  EXPECT_THAT(refused(""), HasSubstr("of no system"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  EXPECT_THAT(refused(deep + "1" + std::string(100, '}')), HasSubstr("nested more than"));
}

}  // namespace
}  // namespace fsdpbench::dialects
