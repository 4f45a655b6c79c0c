// Words of MaxText (src/maxtext/configs/base.yml) and flags of XLA, which schedules what MaxText writes down.
#include <fmt/format.h>

#include <array>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace maxtext_yaml {

using config::Prefetch;
using config::Strategy;

/// Gathers go one iteration of the scan over layers ahead.
bool pipelines_gathers(const ExportSource& s) {
  const Prefetch::Mode mode = s.fsdp().forward_prefetch.mode;
  return mode != Prefetch::Mode::none;
}
bool pipelines_reductions(const ExportSource& s) { return s.fsdp().reduce_lag > 0; }

/// As advised for FSDP: at least what one layer sends, so that a layer is one collective (openxla/xla,
/// JAX-Toolbox#674).
std::int64_t combine_bytes(const ExportSource& s, DType dtype) { return s.largest_unit() * size_of(dtype); }

Said mesh(const ExportSource& s) {
  if (!config::is_hybrid(s.fsdp().strategy)) return written("ici_*_parallelism and dcn_*_parallelism");
  return roughly(fmt::format("ici_fsdp_parallelism = {}, dcn_data_parallelism = {}: a shard group is a node or slice",
                             s.config.mesh.shard, s.config.mesh.replicate));
}

Said strategy(const ExportSource& s) {
  switch (s.fsdp().strategy) {
    case Strategy::no_shard: return written("ici_data_parallelism = -1");
    case Strategy::full_shard:
    case Strategy::hybrid_shard: return written("ici_fsdp_parallelism");
    case Strategy::shard_grad_op:
    case Strategy::hybrid_shard_grad_op: break;
  }
  return lost("parameters are gathered again in backward: remat_policy recomputes what is not saved, gathers among it");
}

Said reshard_after_forward(const ExportSource& s) {
  switch (s.fsdp().reshard_after_forward.mode) {
    case config::ReshardAfterForward::Mode::automatic:
    case config::ReshardAfterForward::Mode::always: return same();
    case config::ReshardAfterForward::Mode::never:
    case config::ReshardAfterForward::Mode::group: break;
  }
  return lost("parameters are gathered again in backward, over all shards");
}

Said prefetch(const ExportSource& s, const Prefetch& wanted) {
  const bool on = wanted.mode != Prefetch::Mode::none;
  if (on != pipelines_gathers(s))
    return lost("the same flag decides on forward and backward (xla_gpu_enable_pipelined_all_gather)");
  if (!on) return same();
  const std::string word = "--xla_gpu_enable_pipelined_all_gather=true";
  return is_one_unit_ahead(wanted) ? written(word) : roughly(word + ", which is one layer ahead");
}
Said forward_prefetch(const ExportSource& s) { return prefetch(s, s.fsdp().forward_prefetch); }
Said backward_prefetch(const ExportSource& s) { return prefetch(s, s.fsdp().backward_prefetch); }

Said reduce_lag(const ExportSource& s) {
  switch (s.fsdp().reduce_lag) {
    case 0: return written("--xla_gpu_enable_pipelined_reduce_scatter=false");
    case 1: return same();
    default: return roughly("--xla_gpu_enable_pipelined_reduce_scatter=true, which is one layer late");
  }
}

Said wrap(const ExportSource& s) {
  if (s.fsdp().wrap.mode == config::Wrap::Mode::block)
    return written("scan_layers: a layer is a unit, by the combine thresholds");
  return roughly("the combine thresholds hold a unit's bytes, but the scan over layers keeps collectives to a layer");
}

Said param_dtype(const ExportSource& s) {
  return written(s.fsdp().param_dtype == DType::bf16 ? "dtype: bfloat16" : "dtype: float32");
}
Said reduce_dtype(const ExportSource& s) {
  return written(s.fsdp().reduce_dtype == DType::bf16 ? "grad_dtype: bfloat16" : "grad_dtype: float32");
}

Said checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing
             ? same()
             : roughly("remat_policy: minimal, which keeps products and recomputes the rest");
}
Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return lost("every layer is recomputed");
}

Said key(const ExportSource&) { return written("a key of the YAML"); }
Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  if (s.config.train.accumulate_mode == config::AccumulateMode::reduce_each) return same();
  return lost("XLA decides where the sum over microbatches is reduced");
}

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.shard", mesh},
    {"mesh.replicate", mesh},
    {"train.seq_len", key},
    {"train.batch_per_rank", key},
    {"train.accumulate", key},
    {"train.accumulate_mode", accumulate_mode},
    {"train.optimizer", key},
    {"train.learning_rate", key},
    {"train.beta1", key},
    {"train.beta2", key},
    {"train.epsilon", key},
    {"train.weight_decay", key},
    {"train.clip_norm", key},
    {"fsdp.strategy", strategy},
    {"fsdp.layout", nullptr, "each array is split along one of its axes"},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.all_gather_limit", nullptr, "one collective in flight, as the compiler orders them"},
    {"fsdp.wrap", wrap},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.activation_checkpointing", checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
    {"fsdp.recompute_share", nullptr, "remat_policy chooses what is kept by name"},
    {"fsdp.checkpoint_keeps", nullptr, "remat_policy chooses what is kept by name"},
    {"fsdp.reduce_lane", nullptr, "gathers and reductions take turns: collectives that share devices never overlap"},
    {"fsdp.reduce_lag", reduce_lag},
});

/// Its qkv_projection gives queries and keys as many heads each.
std::string fused_projections(const config::Model& model) {
  if (!model.fused_projections) return "";
  return model.kv_heads == model.heads
             ? "fused_qkv: true\nfused_mlp: true\n"
             : "# not fused_qkv: it wants as many key heads as query heads\nfused_mlp: true\n";
}

/// The shape of a decoder such as MaxText's default block is; others have a model_name of their own.
std::string model(const config::Model& model) {
  if (model.kind != config::ModelKind::decoder || model.feed_forward != config::FeedForward::gated ||
      model.norm != config::Norm::rms || model.experts > 0 || model.learned_positions > 0)
    return "# model_name: your model; its blocks are not of MaxText's default kind\n";
  return fmt::format(R"(decoder_block: "llama2"
base_num_decoder_layers: {}
base_emb_dim: {}
base_num_query_heads: {}
base_num_kv_heads: {}
head_dim: {}
base_mlp_dim: {}
vocab_size: {}
rope_max_timescale: {}
logits_via_embedding: {}
{})",
                     model.layers, model.width, model.heads, model.kv_heads, model.head_size(), model.ffn_width,
                     model.vocab, static_cast<std::int64_t>(model.rope_theta), model.tied_head,
                     fused_projections(model));
}

std::string yaml(const ExportSource& s) {
  const config::Train& train = s.config.train;
  const config::Fsdp& fsdp = s.fsdp();
  const bool hybrid = config::is_hybrid(fsdp.strategy), none = fsdp.strategy == Strategy::no_shard;
  std::string text = fmt::format(R"(
base_config: "base.yml"
{}
ici_fsdp_parallelism: {}
ici_data_parallelism: {}
dcn_fsdp_parallelism: {}
dcn_data_parallelism: {}
scan_layers: true
remat_policy: "{}"
dtype: "{}"
weight_dtype: "float32"
grad_dtype: "{}"
)",
                                 model(s.config.model),
                                 hybrid ? s.config.mesh.shard
                                 : none ? 1
                                        : -1,
                                 none ? -1 : 1, hybrid || none ? 1 : -1,
                                 hybrid ? s.config.mesh.replicate
                                 : none ? -1
                                        : 1,
                                 fsdp.activation_checkpointing ? "full" : "minimal",
                                 fsdp.param_dtype == DType::bf16 ? "bfloat16" : "float32",
                                 fsdp.reduce_dtype == DType::bf16 ? "bfloat16" : "float32");
  text += fmt::format(R"(
per_device_batch_size: {}
gradient_accumulation_steps: {}
max_target_length: {}
gradient_clipping_threshold: {}
learning_rate: {}
opt_type: "{}"
)",
                      train.batch_per_rank, train.accumulate, train.seq_len, train.clip_norm, train.learning_rate,
                      train.optimizer == config::Optimizer::sgd ? "sgd" : "adamw");
  if (train.optimizer == config::Optimizer::sgd) return text;
  return text + fmt::format("adam_b1: {}\nadam_b2: {}\nadam_eps: {}\nadam_weight_decay: {}\n", train.beta1, train.beta2,
                            train.epsilon, train.weight_decay);
}

std::string flags(const ExportSource& s) {
  return fmt::format(R"(
# JAX 0.10 and before. Later ones say --xla_gpu_pipeline_all_gather=on and --xla_gpu_pipeline_reduce_scatter=on.
export XLA_FLAGS="$XLA_FLAGS \
  --xla_gpu_enable_latency_hiding_scheduler=true \
  --xla_gpu_enable_highest_priority_async_stream=true \
  --xla_gpu_enable_pipelined_all_gather={0} \
  --xla_gpu_enable_pipelined_reduce_scatter={1} \
  --xla_gpu_enable_while_loop_double_buffering={0} \
  --xla_gpu_all_gather_combine_threshold_bytes={2} \
  --xla_gpu_reduce_scatter_combine_threshold_bytes={3} \
  --xla_gpu_all_reduce_combine_threshold_bytes={3}"
)",
                     pipelines_gathers(s), pipelines_reductions(s), combine_bytes(s, s.fsdp().param_dtype),
                     combine_bytes(s, s.fsdp().reduce_dtype));
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  const std::string head = commented("#", notes);
  return {{"maxtext.yml", head + yaml(s)}, {"xla_flags.sh", head + flags(s)}};
}

std::string_view engine(const config::RunConfig& config) {
  return config.fsdp.forward_prefetch.mode == Prefetch::Mode::none ? "xla" : "xla-pipelined";
}

}  // namespace maxtext_yaml
}  // namespace

Dialect maxtext() {
  return {.name = "maxtext",
          .system = "MaxText (August 2026) on GPUs, with XLA's flags of JAX 0.10",
          .what = "a YAML file, and XLA's flags for it: maxtext.yml, xla_flags.sh",
          .engine = maxtext_yaml::engine,
          .rules = maxtext_yaml::kRules,
          .write = maxtext_yaml::write};
}

}  // namespace fsdpbench::dialects
