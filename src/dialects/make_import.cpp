#include "dialects/make_import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "config/fields.h"
#include "config/presets.h"
#include "dialects/import_source.h"
#include "dialects/settings.h"

namespace fsdpbench::dialects {
namespace {

using config::Value;
using Source = ImportSource;

void put_dtype(Source& s, std::string_view key, std::string_view word) {
  if (word == "bf16" || word == "bfloat16") {
    s.put(key, "bf16");
  } else if (word == "fp16" || word == "float16") {
    s.put(key, "bf16");
    s.unread(fmt::format("{} = fp16: bf16, which is as large, stands for it", key));
  } else {
    s.put(key, "fp32");
  }
}

/// Microbatches of a global batch, if the ranks are known; else the batch itself.
void put_global_batch(Source& s, std::optional<std::int64_t> global, std::optional<std::int64_t> local,
                      std::optional<std::int64_t> ranks) {
  if (!global || *global <= 0) return;
  if (local && ranks && *local > 0 && *ranks > 0 && *global % (*local * *ranks) == 0) {
    s.put("train.accumulate", *global / (*local * *ranks));
  } else {
    s.unread(fmt::format("a global batch of {}: how many microbatches it is depends on the ranks (--ranks)", *global));
  }
}

/// Ranks that split sequences: mesh.context. `name`: of the setting; `against`: what of the file it does not go with,
/// if anything. Returns how many ranks.
std::int64_t put_context(Source& s, std::string_view name, std::int64_t ranks, std::string_view against) {
  if (ranks <= 1) return 1;
  if (!against.empty()) {
    s.unread(fmt::format("{} = {}: mesh.context does not go with {}", name, ranks, against));
    return 1;
  }
  s.put("mesh.context", ranks);
  return ranks;
}

// -- torchtitan
// ---------------------------------------------------------------------------------------------------------

constexpr auto kTitanOfNoStep = std::to_array<std::string_view>(
    {"job.", "profiling.", "metrics.", "checkpoint.", "comm.", "fault_tolerance.", "experimental.", "validation.",
     "training.steps", "training.dataset", "training.dataset_path", "lr_scheduler.", "debug.", "model.hf_assets_path",
     "model.tokenizer_path", "memory_estimation."});

/// What torchtitan's file lists, or its argument in one word: compile.components = ["model", "loss"].
std::vector<std::string> components_of(Source& s) {
  std::vector<std::string> all;
  for (const std::string& words : s.list("compile.components")) {
    std::istringstream in(words);
    for (std::string word; std::getline(in, word, ',');) all.push_back(word);
  }
  return all;
}

/// torchtitan compiles its blocks and its loss, or what [compile] components names (its
/// torchtitan/config/job_config.py since August 2025). Before, [training] compile stood for both, and the loss was left
/// out from 2024-12-18 (e8977b0) to 2025-04-02 (bbb1b61).
void put_compiled(Source& s, std::int64_t tensor) {
  const std::optional<bool> enabled = s.boolean("compile.enable");
  const std::vector<std::string> components = components_of(s);
  const auto compiles = [&](const char* what) {
    return enabled.value_or(false) && (components.empty() || std::ranges::find(components, what) != components.end());
  };
  const bool both = s.flag("training.compile");
  if (both || compiles("model")) s.put("simulate.compiled", true);
  if (both) {
    s.unread(
        "training.compile: versions from 2024-12-18 to 2025-04-02 do not compile the loss; of those say "
        "simulate.eager_loss = true");
  } else if (compiles("loss")) {
    if (!compiles("model")) s.put("simulate.fused_loss", true);
  } else if (enabled && tensor == 1) {
    s.put("simulate.eager_loss", true);
  }
}

void read_torchtitan(Source& s, const ImportKnown& known) {
  s.put("fsdp.preset", "fsdp2");
  s.put("fsdp.wrap", "block");
  s.put("fsdp.head_unit", true);
  s.put("fsdp.gradient_scaling", "sum");
  const std::int64_t replicate = s.integer("parallelism.data_parallel_replicate_degree").value_or(1);
  std::int64_t shard = s.integer("parallelism.data_parallel_shard_degree").value_or(-1);
  const std::int64_t tensor = s.integer("parallelism.tensor_parallel_degree").value_or(1);
  if (tensor > 1) s.put("mesh.tensor", tensor);
  const std::int64_t expert = s.integer("parallelism.expert_parallel_degree").value_or(1);
  if (expert > 1) {
    s.put("mesh.expert", expert);
    s.put("fsdp.preset", "torchtitan-moe");
  }
  // Ranks that split sequences shard parameters, too (its mesh dp_shard_cp), and are not among those of
  // data_parallel_shard_degree.
  const std::int64_t context = put_context(s, "parallelism.context_parallel_degree",
                                           s.integer("parallelism.context_parallel_degree").value_or(1),
                                           tensor > 1   ? "mesh.tensor"
                                           : expert > 1 ? "mesh.expert"
                                                        : "");
  const std::string rotates = s.text("parallelism.context_parallel_rotate_method").value_or("allgather");
  if (context > 1 && rotates == "alltoall") {
    s.put("mesh.context_method", "ring");
    s.unread(
        "context_parallel_rotate_method = alltoall: the ring of TransformerEngine stands for PyTorch's, which sends "
        "gradients of keys and values once more, and in fp32");
  } else if (context > 1) {
    s.unread(
        "context_parallel_rotate_method = allgather: keys and values are gathered before attention here; PyTorch "
        "gathers them beside its first step, and sends their gradients around a ring");
  }
  if (shard > 0) shard *= context;
  if (shard < 0 && known.ranks && replicate > 0 && tensor > 0) shard = *known.ranks / replicate / tensor;
  std::optional<std::int64_t> data_ranks;
  if (shard > 0) {
    data_ranks = replicate * shard / context;
    s.put("mesh.ranks", replicate * shard * tensor);
  } else {
    s.unread("the number of ranks (data_parallel_shard_degree = -1): --ranks");
  }
  const bool no_shard = shard == 1 && replicate > 1;
  const bool hybrid = shard != 1 && replicate > 1;
  s.put("fsdp.strategy", no_shard ? "no_shard" : hybrid ? "hybrid_shard" : "full_shard");
  if (hybrid) s.put("mesh.replicate", replicate);
  if (hybrid && shard > 0) s.put("mesh.shard", shard);
  const std::string reshard = s.text("parallelism.fsdp_reshard_after_forward").value_or("default");
  if (reshard == "always") s.put("fsdp.reshard_after_forward", true);
  if (!no_shard && reshard == "never") s.put("fsdp.reshard_after_forward", false);
  if (s.flag("parallelism.enable_fsdp_symm_mem")) s.put("nccl.register_buffers", "window");

  const auto local = s.integer("training.local_batch_size");
  s.put_if("train.batch_per_rank", local);
  put_global_batch(s, s.integer("training.global_batch_size"), local, data_ranks);
  s.put_if("train.seq_len", s.integer("training.seq_len"));
  const auto norm = s.take("training.max_norm");
  double limit = 1;
  if (norm) {
    const auto* real = std::get_if<double>(&*norm);
    const auto* whole = std::get_if<std::int64_t>(&*norm);
    limit = real != nullptr ? *real : whole != nullptr ? static_cast<double>(*whole) : 0;
  }
  s.put("train.clip_norm", std::isfinite(limit) ? limit : 0.0);
  put_dtype(s, "fsdp.param_dtype", s.text("training.mixed_precision_param").value_or("bfloat16"));
  put_dtype(s, "fsdp.reduce_dtype", s.text("training.mixed_precision_reduce").value_or("float32"));
  if (s.flag("training.enable_cpu_offload")) s.put("fsdp.cpu_offload", "all");

  auto mode = s.text("activation_checkpoint.mode");
  if (!mode) mode = s.text("activation_checkpoint");
  const std::string option = s.text("activation_checkpoint.selective_ac_option").value_or("op");
  if (mode && *mode != "none") s.put("fsdp.activation_checkpointing", true);
  if (mode == "selective") {
    std::int64_t every = 0;
    if (std::from_chars(option.data(), option.data() + option.size(), every).ec == std::errc() && every > 0) {
      s.put("fsdp.checkpoint_every", every);
    } else {
      s.put("fsdp.checkpoint_keeps", "every_second_product");
    }
  } else if (!mode) {
    s.unread("activation_checkpoint.mode is not said, and differs by version of torchtitan");
  }
  if (s.text("optimizer.name").value_or("AdamW") != "AdamW") s.unread("optimizer.name: AdamW stands for it");
  s.put("train.optimizer", "adamw");
  s.put_if("train.learning_rate", s.number("optimizer.lr"));
  s.put_if("train.beta1", s.number("optimizer.beta1"));
  s.put_if("train.beta2", s.number("optimizer.beta2"));
  s.put_if("train.epsilon", s.number("optimizer.eps"));
  s.put_if("train.weight_decay", s.number("optimizer.weight_decay"));
  put_compiled(s, tensor);
  if (s.text("optimizer.implementation") == "fused") s.put("simulate.fused_optimizer", true);
  s.ignore(kTitanOfNoStep);
}

// -- Accelerate
// ---------------------------------------------------------------------------------------------------------

constexpr auto kAccelerateOfNoStep = std::to_array<std::string_view>(
    {"compute_environment", "debug", "enable_cpu_affinity", "downcast_bf16", "machine_rank", "main_training_function",
     "rdzv_backend", "same_network", "main_process_ip", "main_process_port", "use_cpu", "tpu_env.", "tpu_use_cluster",
     "tpu_use_sudo", "fsdp_config.fsdp_state_dict_type", "fsdp_config.fsdp_cpu_ram_efficient_loading",
     "fsdp_config.fsdp_sync_module_states", "fsdp_config.fsdp_use_orig_params",
     "fsdp_config.fsdp_transformer_layer_cls_to_wrap"});

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void read_accelerate(Source& s) {
  const auto ranks = s.integer("num_processes");
  const std::int64_t machines = s.integer("num_machines").value_or(1);
  s.put_if("mesh.ranks", ranks);
  const std::string precision = s.text("mixed_precision").value_or("no");
  put_dtype(s, "fsdp.param_dtype", precision);
  put_dtype(s, "fsdp.reduce_dtype", precision);
  s.put("train.accumulate_mode", "no_sync");
  s.put_if("train.accumulate", s.integer("gradient_accumulation_steps"));
  const std::string kind = s.text("distributed_type").value_or("FSDP");
  if (kind == "MULTI_GPU" || kind == "MULTI_CPU") {
    s.put("fsdp.preset", "fsdp2");
    s.put("fsdp.strategy", "no_shard");
    return s.ignore(kAccelerateOfNoStep);
  }
  if (kind != "FSDP")
    throw ConfigError(fmt::format(
        "distributed_type = {}: FSDP and MULTI_GPU can be imported; for DEEPSPEED, import its JSON.", kind));
  const auto of = [](std::string_view name) { return fmt::format("fsdp_config.fsdp_{}", name); };
  const bool first = s.integer(of("version")).value_or(1) == 1;
  s.put("fsdp.preset", first ? "fsdp1" : "fsdp2");
  const std::string reshard = s.text(of("reshard_after_forward")).value_or(first ? "FULL_SHARD" : "true");
  const std::string strategy = lower(s.text(of("sharding_strategy")).value_or(reshard));
  const std::int64_t replicate = s.integer("parallelism_config.parallelism_config_dp_replicate_size").value_or(1);
  const std::int64_t shard = s.integer("parallelism_config.parallelism_config_dp_shard_size").value_or(1);
  if (first) {
    constexpr auto kWords =
        std::to_array<std::pair<std::string_view, std::string_view>>({{"full_shard", "full_shard"},
                                                                      {"1", "full_shard"},
                                                                      {"shard_grad_op", "shard_grad_op"},
                                                                      {"2", "shard_grad_op"},
                                                                      {"no_shard", "no_shard"},
                                                                      {"3", "no_shard"},
                                                                      {"hybrid_shard", "hybrid_shard"},
                                                                      {"4", "hybrid_shard"},
                                                                      {"hybrid_shard_zero2", "hybrid_shard_grad_op"},
                                                                      {"_hybrid_shard_zero2", "hybrid_shard_grad_op"},
                                                                      {"5", "hybrid_shard_grad_op"}});
    const auto word = std::ranges::find(kWords, strategy, &std::pair<std::string_view, std::string_view>::first);
    if (word == kWords.end())
      throw ConfigError(fmt::format("fsdp_sharding_strategy = {}: no such strategy.", strategy));
    s.put("fsdp.strategy", word->second);
    if (word->second.starts_with("hybrid") && ranks) {
      s.put("mesh.shard", std::max<std::int64_t>(1, *ranks / std::max<std::int64_t>(1, machines)));
      s.put("mesh.replicate", std::max<std::int64_t>(1, machines));
    }
    const std::string before = lower(s.text(of("backward_prefetch")).value_or("BACKWARD_PRE"));
    s.put("fsdp.backward_prefetch", before == "backward_pre" ? "pre" : before == "backward_post" ? "post" : "none");
    if (s.flag(of("forward_prefetch"))) s.put("fsdp.forward_prefetch", "explicit:1");
  } else {
    const bool frees = reshard == "true";
    const bool hybrid = replicate > 1 || s.has("parallelism_config.parallelism_config_dp_replicate_size") || shard > 1;
    s.put("fsdp.strategy",
          hybrid ? (frees ? "hybrid_shard" : "hybrid_shard_grad_op") : (frees ? "full_shard" : "shard_grad_op"));
    if (hybrid) {
      s.put("mesh.shard", shard);
      s.put("mesh.replicate", replicate);
    }
    s.put("fsdp.head_unit", true);
  }
  const std::string wrap = s.text(of("auto_wrap_policy")).value_or("NO_WRAP");
  const auto least = s.integer(of("min_num_params"));
  if (wrap == "TRANSFORMER_BASED_WRAP") {
    s.put("fsdp.wrap", "block");
  } else if (wrap == "SIZE_BASED_WRAP") {
    s.put("fsdp.wrap", fmt::format("size:{}", least.value_or(100'000'000)));
  } else {
    s.put("fsdp.wrap", "model");
  }
  if (s.flag(of("activation_checkpointing"))) s.put("fsdp.activation_checkpointing", true);
  if (s.flag(of("offload_params"))) s.put("fsdp.cpu_offload", "all");
  s.ignore(kAccelerateOfNoStep);
}

// -- DeepSpeed
// ----------------------------------------------------------------------------------------------------------

constexpr auto kDeepSpeedOfNoStep = std::to_array<std::string_view>(
    {"_comment.", "steps_per_print", "wall_clock_breakdown", "zero_optimization.contiguous_gradients",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save", "zero_optimization.sub_group_size",
     "zero_optimization.offload_optimizer.pin_memory", "zero_optimization.offload_param.pin_memory",
     "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "tensorboard.", "wandb.", "csv_monitor.",
     "flops_profiler.", "comms_logger.", "scheduler."});

void read_deepspeed(Source& s, const ImportKnown& known) {
  const auto of = [](std::string_view name) { return fmt::format("zero_optimization.{}", name); };
  const std::int64_t stage = s.integer(of("stage")).value_or(0);
  if (stage < 0 || stage > 3) throw ConfigError(fmt::format("zero_optimization.stage = {}: 0, 1, 2 or 3.", stage));
  const std::int64_t secondary = s.integer(of("zero_hpz_partition_size")).value_or(1);
  const bool weights = s.flag(of("zero_quantized_weights")), gradients = s.flag(of("zero_quantized_gradients"));
  if (stage == 3) {
    s.put("fsdp.preset", secondary > 1 ? "deepspeed-z3-hpz" : "deepspeed-z3");
    if (secondary > 1) s.put("fsdp.reshard_after_forward", secondary);
    if (weights) s.put("fsdp.gather_quantization", "int8:8000");
    if (gradients) {
      s.put("fsdp.reduce_quantization", "int4:2048");
      s.unread("zero_quantized_gradients: the ranks of a node, fsdp.reduce_within");
    }
  } else {
    s.put("fsdp.preset", stage == 0 ? "fsdp2" : fmt::format("deepspeed-z{}", stage));
    if (stage == 0) s.put("fsdp.strategy", "no_shard");
    if (stage == 0) s.put("train.accumulate_mode", "no_sync");
  }
  if (stage > 0) {
    s.put_if("fsdp.reduce_bucket", s.integer(of("reduce_bucket_size")));
    if (const auto overlap = s.boolean(of("overlap_comm")))
      s.put("fsdp.reduce_lane", *overlap ? "reduce_scatter" : "compute");
  }
  if (const auto all = s.boolean(of("use_multi_rank_bucket_allreduce")))
    s.put("fsdp.reduce_by", *all ? "all_reduce" : "reduce_scatter");
  if (const auto scatter = s.boolean(of("reduce_scatter")); scatter && stage == 3)
    s.put("fsdp.reduce_by", *scatter ? "reduce_scatter" : "all_reduce");
  if (const auto bucket = s.integer(of("stage3_prefetch_bucket_size")); bucket && stage == 3) {
    const std::string prefetch = *bucket > 0 ? fmt::format("rate:{}", *bucket) : "none";
    s.put("fsdp.forward_prefetch", prefetch);
    s.put("fsdp.backward_prefetch", prefetch);
  }
  for (const auto& [theirs, ours] : std::to_array<std::pair<std::string_view, std::string_view>>(
           {{"stage3_max_live_parameters", "fsdp.max_live_parameters"},
            {"stage3_max_reuse_distance", "fsdp.max_reuse_distance"},
            {"stage3_param_persistence_threshold", "fsdp.persistence_threshold"}})) {
    if (const auto value = s.integer(of(theirs)); value && stage == 3) s.put(ours, *value);
  }
  const std::string optimizer_place = s.text(of("offload_optimizer.device")).value_or("none");
  const std::string shards_place = s.text(of("offload_param.device")).value_or("none");
  if (optimizer_place == "nvme" || shards_place == "nvme")
    s.unread("offload to nvme: memory of the host stands for it");
  if (shards_place != "none" && stage == 3) {
    s.put("fsdp.cpu_offload", "all");
  } else if (optimizer_place != "none") {
    s.put("fsdp.cpu_offload", "optimizer");
  }

  const auto local = s.integer("train_micro_batch_size_per_gpu");
  const auto accumulate = s.integer("gradient_accumulation_steps");
  s.put_if("train.batch_per_rank", local);
  s.put_if("train.accumulate", accumulate);
  const auto global = s.integer("train_batch_size");
  if (global && !accumulate) put_global_batch(s, global, local, known.ranks);
  s.put_if("train.clip_norm", s.number("gradient_clipping"));
  const bool half = s.flag("fp16.enabled");
  if (half) s.unread("fp16.enabled: bf16, which is as large, stands for it");
  const bool low = s.flag("bf16.enabled") || half;
  s.put("fsdp.param_dtype", low ? "bf16" : "fp32");
  put_dtype(s, "fsdp.reduce_dtype", s.text("communication_data_type").value_or(low ? "bf16" : "fp32"));
  const std::string name = s.text("optimizer.type").value_or("AdamW");
  s.put("train.optimizer", name == "SGD" ? "sgd" : "adamw");
  if (name != "SGD" && name != "AdamW" && name != "Adam")
    s.unread(fmt::format("optimizer.type = {}: AdamW stands for it", name));
  s.put_if("train.learning_rate", s.number("optimizer.params.lr"));
  s.put_if("train.beta1", s.number("optimizer.params.betas.0"));
  s.put_if("train.beta2", s.number("optimizer.params.betas.1"));
  s.put_if("train.epsilon", s.number("optimizer.params.eps"));
  s.put_if("train.weight_decay", s.number("optimizer.params.weight_decay"));
  if (known.ranks) s.put("mesh.ranks", *known.ranks);
  s.ignore(kDeepSpeedOfNoStep);
}

// -- Megatron-LM
// --------------------------------------------------------------------------------------------------------

constexpr auto kMegatronOfNoStep = std::to_array<std::string_view>({"ckpt-format",
                                                                    "no-gradient-accumulation-fusion",
                                                                    "save",
                                                                    "load",
                                                                    "save-interval",
                                                                    "eval-interval",
                                                                    "eval-iters",
                                                                    "log-interval",
                                                                    "tensorboard-dir",
                                                                    "data-path",
                                                                    "split",
                                                                    "tokenizer-type",
                                                                    "tokenizer-model",
                                                                    "train-iters",
                                                                    "lr-decay-style",
                                                                    "min-lr",
                                                                    "lr-warmup-fraction",
                                                                    "lr-warmup-iters",
                                                                    "lr-decay-iters",
                                                                    "init-method-std",
                                                                    "use-mcore-models",
                                                                    "transformer-impl",
                                                                    "make-vocab-size-divisible-by",
                                                                    "attention-dropout",
                                                                    "hidden-dropout",
                                                                    "use-distributed-optimizer",
                                                                    "outer-dp-sharding-strategy",
                                                                    "init-model-with-meta-device",
                                                                    "distributed-backend"});

void read_megatron_model(Source& s, std::optional<std::int64_t> layers) {
  if (layers) {
    s.put("model.kind", "decoder");
    s.put("model.layers", *layers);
    s.put("model.tied_head", !s.flag("untie-embeddings-and-output-weights"));
    const bool gated = s.flag("swiglu");
    s.put("model.feed_forward", gated ? "gated" : "plain");
    s.put("model.norm", s.text("normalization").value_or("LayerNorm") == "RMSNorm" ? "rms" : "layer");
    s.put("model.bias", !s.flag("disable-bias-linear"));
    s.put("model.fused_projections", true);
    const auto width = s.integer("hidden-size");
    const auto heads = s.integer("num-attention-heads");
    s.put_if("model.width", width);
    s.put_if("model.heads", heads);
    const auto groups = s.integer("num-query-groups");
    s.put_if("model.kv_heads", s.flag("group-query-attention") && groups ? groups : heads);
    const auto inner = s.integer("ffn-hidden-size");
    if (inner || width) s.put("model.ffn_width", inner ? *inner : 4 * *width);
    s.put_if("model.head_dim", s.integer("kv-channels"));
    const auto positions = s.integer("max-position-embeddings");
    const std::string kind = s.text("position-embedding-type").value_or("learned_absolute");
    if (kind == "learned_absolute" && positions) s.put("model.learned_positions", *positions);
    s.put_if("model.rope_theta", s.number("rotary-base"));
    s.put_if("model.norm_epsilon", s.number("norm-epsilon"));
    if (s.flag("qk-layernorm")) s.put("model.qk_norm", true);
    if (const auto experts = s.integer("num-experts")) {
      s.put("model.experts", *experts);
      s.put("model.active_experts", s.integer("moe-router-topk").value_or(2));
      const auto one = s.integer("moe-ffn-hidden-size");
      s.put_if("model.ffn_width", one);
      const auto each = one ? one : inner, shared = s.integer("moe-shared-expert-intermediate-size");
      const bool overlaps = s.flag("moe-shared-expert-overlap");
      if (shared && each && *each > 0 && *shared % *each == 0) {
        s.put("model.shared_experts", *shared / *each);
        if (overlaps) s.put("mesh.expert_overlap", "both");
      } else if (shared) {
        s.unread(fmt::format("moe-shared-expert-intermediate-size = {}: no multiple of an expert's width", *shared));
      }
      const std::string score = s.text("moe-router-score-function").value_or("softmax");
      if (score == "softmax" || score == "sigmoid") s.put("model.router_score", score);
      const auto balance = s.number("moe-aux-loss-coeff");
      if (s.text("moe-router-load-balancing-type").value_or("aux_loss") == "aux_loss" && balance &&
          score == "softmax") {
        s.put("model.router_aux_loss", *balance);
      }
      // A negative factor is none (transformer_config.py), and then no policy drops anything.
      if (const auto capacity = s.number("moe-expert-capacity-factor"); capacity && *capacity > 0) {
        s.unread(fmt::format("--moe-expert-capacity-factor {}: experts take all rows here", *capacity));
      }
      s.text("moe-token-drop-policy");
      const auto expert = s.integer("expert-model-parallel-size");
      if (expert && *expert > 1) s.put("mesh.expert", *expert);
      if (s.flag("overlap-moe-expert-parallel-comm")) {
        s.unread(
            "--overlap-moe-expert-parallel-comm: it computes the forward of a microbatch beside the backward of "
            "another");
      }
    }
  }
  s.put_if("model.vocab", s.first_integer({"padded-vocab-size", "vocab-size"}));
}

/// --cp-comm-type, one word for all layers or one for each; p2p where it is not given.
void put_context_method(Source& s, std::int64_t context) {
  const std::string type = s.text("cp-comm-type").value_or("p2p");
  if (context == 1) return;
  const std::vector<std::string>& others = s.words_after("cp-comm-type");
  const bool ring = type == "p2p";
  s.put("mesh.context_method", ring ? "ring" : "all_gather");
  if (std::ranges::any_of(others, [&](const std::string& word) { return word != type; })) {
    s.unread(fmt::format("--cp-comm-type {} {}: the first word stands for all layers", type, fmt::join(others, " ")));
  }
  if (!ring && type != "all_gather") {
    s.unread(
        fmt::format("--cp-comm-type {}: all_gather stands for it, which sends other bytes; a2a and a2a+p2p, which "
                    "exchange heads, are not simulated",
                    type));
  }
}

/// --recompute-granularity: whole layers, or of each layer the modules that --recompute-modules names, core_attn where
/// it names none; `against`: what keys do not let modules alone be recomputed with.
void put_recomputation(Source& s, std::optional<std::int64_t> blocks, std::string_view against) {
  const auto granularity = s.text("recompute-granularity");
  const std::string method = s.text("recompute-method").value_or("uniform");
  const std::int64_t count = s.integer("recompute-num-layers").value_or(1);
  std::vector<std::string> modules = s.list("recompute-modules");
  const std::vector<std::string>& more = s.words_after("recompute-modules");
  modules.insert(modules.end(), more.begin(), more.end());
  if (modules.empty()) modules = {"core_attn"};
  if (!granularity) return;
  if (*granularity != "selective") {
    s.put("fsdp.activation_checkpointing", true);
    if (method == "block" && blocks && count > 0 && count < *blocks)
      s.put("fsdp.checkpoint_every", (*blocks + count - 1) / count);
    if (method == "uniform" && count > 1)
      s.unread(fmt::format("--recompute-num-layers {}: each layer stands for it", count));
    return;
  }
  // Of models with experts every layer has them here.
  const std::string_view feed_forward = s.has_key("model.experts") ? "moe" : "mlp";
  const auto names = [&](std::string_view module) { return std::ranges::find(modules, module) != modules.end(); };
  const std::string_view taken = names(feed_forward) ? feed_forward : names("core_attn") ? "core_attn" : "";
  std::erase(modules, std::string(taken));
  if (!taken.empty() && !against.empty()) {
    const bool whole = taken == feed_forward;
    if (whole) s.put("fsdp.activation_checkpointing", true);
    s.unread(fmt::format("--recompute-modules {}: with {} {}", taken, against,
                         whole ? "whole layers stand for it" : "nothing is recomputed for it"));
  } else if (!taken.empty()) {
    s.put("fsdp.activation_checkpointing", true);
    s.put("fsdp.checkpoint_keeps", taken == feed_forward ? "all_but_feed_forward" : "all_but_attention");
  }
  if (!modules.empty()) {
    s.unread(fmt::format("--recompute-modules {}: what {} here", fmt::join(modules, " "),
                         modules.size() == 1 ? "it saves is kept" : "they save is kept"));
  }
}

void read_megatron(Source& s, const ImportKnown& known) {
  const auto own = s.integer("num-layers");
  read_megatron_model(s, own);
  const std::optional<std::int64_t> blocks = own ? own : known.layers;
  const bool rewrite = s.integer("megatron-fsdp-version").value_or(1) == 2;
  const bool fsdp = s.flag("use-megatron-fsdp") || s.flag("use-custom-fsdp");
  if (!fsdp) s.unread("--use-megatron-fsdp is not among the flags; Megatron-FSDP stands for the distributed optimizer");
  s.put("fsdp.preset", rewrite ? "megatron-v2" : "megatron-v1");
  const std::string sharding = s.text("data-parallel-sharding-strategy").value_or("no_shard");
  const std::int64_t replicas = s.integer("num-distributed-optimizer-instances").value_or(1);
  const bool hybrid = replicas > 1 && sharding != "no_shard";
  const bool full = sharding == "optim_grads_params";
  s.put("fsdp.strategy", sharding == "no_shard" ? "no_shard"
                         : full                 ? (hybrid ? "hybrid_shard" : "full_shard")
                                                : (hybrid ? "hybrid_shard_grad_op" : "shard_grad_op"));
  if (!full && rewrite && sharding != "no_shard") s.put("fsdp.reshard_after_forward", false);
  if (known.ranks) s.put("mesh.ranks", *known.ranks);
  if (hybrid) {
    s.put("mesh.replicate", replicas);
    if (known.ranks) s.put("mesh.shard", *known.ranks / replicas);
  }
  if (sharding == "optim") s.put("train.accumulate_mode", "no_sync");
  const bool overlaps = s.flag("overlap-grad-reduce");
  s.flag("overlap-param-gather");
  if (!overlaps && (sharding == "optim" || sharding == "no_shard")) s.put("fsdp.reduce_lane", "compute");
  if (const auto size = s.integer("suggested-communication-unit-size"); size && !rewrite) {
    const std::string window = *size == 1 ? "none" : fmt::format("window:{}", *size / 2);
    s.put("fsdp.forward_prefetch", window);
    s.put("fsdp.backward_prefetch", window);
    s.put("fsdp.reduce_scatter_elements", *size);
  }
  if (s.flag("fsdp-double-buffer")) s.put("fsdp.all_gather_limit", "buffers:2");
  if (s.flag("create-all-gather-group")) s.put("fsdp.separate_reduce_scatter_comm", true);
  const bool local = s.flag("disable-symmetric-registration");
  if (s.flag("use-nccl-ub")) s.put("nccl.register_buffers", local ? "local" : "window");
  s.put("fsdp.gradient_scaling", s.flag("ddp-average-in-collective") ? "average" : "sum");
  if (s.flag("fp16")) s.unread("--fp16: bf16, which is as large, stands for it");
  s.put("fsdp.param_dtype", s.flag("bf16") ? "bf16" : "fp32");
  put_dtype(s, "fsdp.reduce_dtype", s.text("megatron-fsdp-grad-comm-dtype").value_or("fp32"));
  const std::int64_t tensor = s.integer("tensor-model-parallel-size").value_or(1);
  if (tensor > 1) s.put("mesh.tensor", tensor);
  if (s.flag("sequence-parallel") && tensor > 1) s.put("mesh.sequence_parallel", true);
  const std::int64_t context = put_context(s, "context-parallel-size", s.integer("context-parallel-size").value_or(1),
                                           tensor > 1                 ? "mesh.tensor"
                                           : s.has_key("mesh.expert") ? "mesh.expert"
                                           : sharding == "no_shard"   ? "fsdp.strategy = no_shard"
                                                                      : "");
  put_context_method(s, context);
  put_recomputation(s, blocks,
                    tensor > 1                            ? "mesh.tensor"
                    : context > 1                         ? "mesh.context"
                    : rewrite && s.has_key("mesh.expert") ? "fsdp.expert_unit"
                                                          : "");
  s.put_if("train.seq_len", s.integer("seq-length"));
  const auto micro = s.integer("micro-batch-size");
  s.put_if("train.batch_per_rank", micro);
  put_global_batch(
      s, s.integer("global-batch-size"), micro,
      known.ranks ? std::optional(*known.ranks / std::max<std::int64_t>(1, tensor * context)) : std::nullopt);
  s.put("train.optimizer", s.text("optimizer").value_or("adam") == "sgd" ? "sgd" : "adamw");
  s.put_if("train.learning_rate", s.number("lr"));
  s.put_if("train.beta1", s.number("adam-beta1"));
  s.put_if("train.beta2", s.number("adam-beta2"));
  s.put_if("train.epsilon", s.number("adam-eps"));
  s.put_if("train.weight_decay", s.number("weight-decay"));
  s.put_if("train.clip_norm", s.number("clip-grad"));
  s.ignore(kMegatronOfNoStep);
}

constexpr auto kSources = std::to_array<std::string_view>({
    "Hugging Face: a model's config.json, and peft's adapter_config.json",
    "torchtitan: TOML, or the arguments of newer versions",
    "Accelerate: the YAML of `accelerate config`",
    "DeepSpeed: JSON",
    "Megatron-LM: arguments, one or more a line",
});

}  // namespace

std::vector<std::string_view> import_sources() { return {kSources.begin(), kSources.end()}; }

Import make_import(const std::vector<ImportFile>& files, const ImportKnown& known) {
  Import found;
  for (const ImportFile& file : files) {
    Settings settings = parse_settings(file.text, file.path);
    const bool json = settings.format == SettingsFormat::json;
    const bool arguments = settings.format == SettingsFormat::arguments;
    const bool peft = json && settings.has("peft_type");
    const bool hugging = json && (settings.has("model_type") || settings.has_table("architectures."));
    const bool zero = json && (settings.has_table("zero_optimization.") ||
                               settings.has("train_micro_batch_size_per_gpu") || settings.has("train_batch_size"));
    const bool titan = (settings.format == SettingsFormat::toml || arguments) &&
                       (settings.has_table("training.") || settings.has_table("parallelism."));
    const bool yaml = settings.format == SettingsFormat::yaml &&
                      (settings.has("distributed_type") || settings.has_table("fsdp_config."));
    Source source(std::move(settings), found);
    const auto read = [&](std::string_view system, const auto& reader) {
      found.systems.emplace_back(system);
      reader();
      source.list_the_rest();
    };
    if (peft) {
      read("Hugging Face's peft", [&] { read_peft(source); });
    } else if (hugging) {
      read("Hugging Face", [&] { read_hugging_face(source, file.path); });
    } else if (zero) {
      read("DeepSpeed", [&] { read_deepspeed(source, known); });
    } else if (titan) {
      read("torchtitan", [&] { read_torchtitan(source, known); });
    } else if (yaml) {
      read("Accelerate", [&] { read_accelerate(source); });
    } else if (arguments) {
      read("Megatron-LM", [&] { read_megatron(source, known); });
    } else {
      throw ConfigError(fmt::format("{}: of no system that can be imported. Those are: {}; {}; {}; {}; {}.", file.path,
                                    kSources[0], kSources[1], kSources[2], kSources[3], kSources[4]));
    }
  }
  const bool ranks = std::ranges::any_of(found.keys, [](const auto& key) { return key.first == "mesh.ranks"; });
  if (!ranks && known.ranks) found.keys.emplace_back("mesh.ranks", *known.ranks);
  if (!ranks && !known.ranks) found.unread.emplace_back("the number of ranks: --ranks");
  return found;
}

config::RunConfig imported(const Import& import, const config::RunConfig& base) {
  config::RunConfig config = base;
  const auto set = [&](std::string_view key, const Value& value) {
    const config::Field* field = config::find_field(key);
    if (!field->read(config, value))
      throw ConfigError(fmt::format("{} = {}: must be {}.", key, config::to_toml(value), field->valid));
  };
  for (const auto& [key, value] : import.keys) {
    if (key != "fsdp.preset") continue;
    for (const auto& [name, setting] : config::fsdp_preset(std::get<std::string>(value))) set(name, setting);
  }
  for (const auto& [key, value] : import.keys) set(key, value);
  return config;
}

}  // namespace fsdpbench::dialects
