// Words of DeepSpeed's JSON configuration (ZeRO). Names and defaults as in deepspeed/runtime/zero/config.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace zero {

using config::Prefetch;
using config::Strategy;
using ReshardMode = config::ReshardAfterForward::Mode;
using nlohmann::ordered_json;

/// More than any model has: what DeepSpeed calls no limit.
constexpr std::int64_t kAll = 1'000'000'000'000;

/// As preset deepspeed-z1: reduced after backward only.
bool reduces_after_backward(const config::RunConfig& config) {
  return config.fsdp.reduce_lag > 0 && config.train.accumulate_mode == config::AccumulateMode::no_sync;
}

/// As presets deepspeed-z1 and -z2: one gather after the optimizer step brings the whole model.
bool gathers_once(const config::RunConfig& config) { return config.fsdp.persistence_threshold >= kAll; }

int stage(const config::RunConfig& config) {
  if (gathers_once(config)) return reduces_after_backward(config) ? 1 : 2;
  switch (config.fsdp.strategy) {
    case Strategy::no_shard: return 0;
    case Strategy::full_shard:
    case Strategy::hybrid_shard: return 3;
    case Strategy::shard_grad_op:
    case Strategy::hybrid_shard_grad_op: break;
  }
  return reduces_after_backward(config) ? 1 : 2;
}
int stage(const ExportSource& s) { return stage(s.config); }

std::string_view engine(const config::RunConfig& config) {
  switch (stage(config)) {
    case 3:
      if (config.fsdp.gather_quantization.on() || config.fsdp.reduce_quantization.on()) return "deepspeed-zeropp";
      return config.fsdp.reshard_after_forward.mode == ReshardMode::group ? "deepspeed-z3-hpz" : "deepspeed-z3";
    case 1: return "deepspeed-z1";
    default: return "deepspeed-z2";
  }
}

/// Elements that one hook asks for.
std::int64_t prefetch_bucket(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (prefetch.mode == Prefetch::Mode::rate || prefetch.mode == Prefetch::Mode::window) return prefetch.elements;
  return prefetch.mode == Prefetch::Mode::none ? 0 : s.largest_unit();
}

/// A hook asks again and again, so this is what bounds how far prefetching goes.
std::int64_t max_live(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (s.fsdp().max_live_parameters > 0) return s.fsdp().max_live_parameters;
  if (prefetch.mode == Prefetch::Mode::rate) return kAll;
  const int ahead = std::max(1, units_ahead(s, prefetch));
  return s.plan.units.front().layout.parameter_numel() + (ahead + 1) * s.largest_unit();
}

std::int64_t max_reuse(const ExportSource& s) {
  return s.fsdp().reshard_after_forward.mode == ReshardMode::never ? kAll : s.fsdp().max_reuse_distance;
}

std::int64_t persistence(const ExportSource& s) {
  return std::min(kAll, std::max(s.fsdp().persistence_threshold, s.fsdp().shard_threshold));
}

std::int64_t reduce_bucket_size(const ExportSource& s) {
  return s.fsdp().reduce_bucket > 0 ? s.fsdp().reduce_bucket : s.largest_unit();
}

Said by_stage(const ExportSource& s) { return written(fmt::format("zero_optimization.stage = {}", stage(s))); }

/// What ranks a freed unit is gathered from again in backward: hpZ keeps a second, coarser split.
int secondary(const ExportSource& s) {
  if (s.fsdp().reshard_after_forward.mode == ReshardMode::group) return s.fsdp().reshard_after_forward.group;
  return s.fsdp().strategy == Strategy::hybrid_shard ? static_cast<int>(s.config.mesh.shard) : 1;
}

Said shard(const ExportSource& s) {
  if (!config::is_hybrid(s.fsdp().strategy)) return same();
  if (s.fsdp().strategy == Strategy::hybrid_shard)
    return roughly(fmt::format("zero_hpz_partition_size = {}: backward gathers within such a group", secondary(s)));
  return lost("stage 2 splits over all ranks");
}

Said strategy(const ExportSource& s) {
  switch (s.fsdp().strategy) {
    case Strategy::hybrid_shard:
      return roughly("stage 3 over all ranks, with zero_hpz_partition_size (MiCS was removed)");
    case Strategy::hybrid_shard_grad_op: return roughly("stage 2 over all ranks, without replicas");
    case Strategy::no_shard:
    case Strategy::shard_grad_op:
    case Strategy::full_shard: break;
  }
  return by_stage(s);
}

Said reshard_after_forward(const ExportSource& s) {
  if (stage(s) != 3) return same();
  switch (s.fsdp().reshard_after_forward.mode) {
    case ReshardMode::always: return same();
    case ReshardMode::automatic:
      return s.fsdp().strategy == Strategy::full_shard || s.fsdp().strategy == Strategy::hybrid_shard
                 ? roughly("everything is freed, the root too")
                 : same();
    case ReshardMode::never:
      return roughly("stage3_max_reuse_distance beyond the model: whatever was gathered stays until its backward");
    case ReshardMode::group: break;
  }
  return written(fmt::format("zero_hpz_partition_size = {} (ZeRO++)", secondary(s)));
}

Said forward_prefetch(const ExportSource& s) {
  if (gathers_once(s.config)) return same();  // then nothing is gathered that could be prefetched
  if (stage(s) != 3) return lost("one gather after the optimizer step brings everything");
  const std::string word = fmt::format("stage3_prefetch_bucket_size = {}", prefetch_bucket(s));
  const Prefetch::Mode mode = s.fsdp().forward_prefetch.mode;
  if (mode == Prefetch::Mode::rate || mode == Prefetch::Mode::none) return written(word);
  return roughly(fmt::format("{} at each hook, until stage3_max_live_parameters = {} are gathered", word, max_live(s)));
}

Said backward_prefetch(const ExportSource& s) {
  if (stage(s) != 3) return same();
  if (s.fsdp().backward_prefetch == s.fsdp().forward_prefetch &&
      (s.fsdp().backward_prefetch.mode == Prefetch::Mode::rate ||
       s.fsdp().backward_prefetch.mode == Prefetch::Mode::none))
    return written("stage3_prefetch_bucket_size");
  return roughly("as forward: one recorded order through both");
}

Said max_live_parameters(const ExportSource& s) {
  if (stage(s) != 3) return same();
  const std::string word = fmt::format("stage3_max_live_parameters = {}", max_live(s));
  if (s.fsdp().max_live_parameters > 0) return written(word);
  return roughly(word + ", for the depth of prefetching");
}

Said max_reuse_distance(const ExportSource& s) {
  return stage(s) == 3 ? written(fmt::format("stage3_max_reuse_distance = {}", max_reuse(s))) : same();
}

Said persistence_threshold(const ExportSource& s) {
  if (stage(s) != 3) return same();
  const std::string word = fmt::format("stage3_param_persistence_threshold = {}", persistence(s));
  return s.fsdp().persistence_threshold == 0 ? written(word) : roughly(word + ", parameter by parameter, not by unit");
}

Said shard_threshold(const ExportSource& s) {
  if (s.fsdp().shard_threshold == 0) return same();
  if (stage(s) != 3) return lost("all parameters are whole; the optimizer splits all of them");
  return roughly(fmt::format("stage3_param_persistence_threshold = {}: gathered once a step, and updated in parts",
                             persistence(s)));
}

Said reduce_bucket(const ExportSource& s) {
  const std::string word = fmt::format("reduce_bucket_size = {}", reduce_bucket_size(s));
  return s.fsdp().reduce_bucket > 0 ? written(word)
                                    : roughly(word + ", a unit; it leaves when the next gradient does not fit");
}

Said reduce_by(const ExportSource& s) {
  const bool whole = s.fsdp().reduce_by == config::ReduceBy::all_reduce;
  if (stage(s) == 3) return whole ? written("reduce_scatter = false") : same();
  if (stage(s) == 0) return same();
  return whole ? same() : roughly("use_multi_rank_bucket_allreduce = false: one reduction for each owner");
}

Said quantization(const ExportSource& s, const Quantization& asked, const char* key, int bits, const char* blocks) {
  if (!asked.on()) return same();
  if (stage(s) != 3) return lost("numbers are sent as they are below stage 3");
  return roughly(fmt::format("{} = true (ZeRO++): integers of {} bits, in blocks of {}", key, bits, blocks));
}
Said gather_quantization(const ExportSource& s) {
  return quantization(s, s.fsdp().gather_quantization, "zero_quantized_weights", 8, "at most 8000 numbers");
}
Said reduce_quantization(const ExportSource& s) {
  return quantization(s, s.fsdp().reduce_quantization, "zero_quantized_gradients", 4,
                      "a row or column; on one node a reduce-scatter");
}
Said reduce_within(const ExportSource& s) {
  return s.fsdp().reduce_quantization.on() ? yours("the ranks of a node are those that the launcher put there")
                                           : same();
}
Said keep_group_shard(const ExportSource& s) {
  const bool hpz = s.fsdp().reshard_after_forward.mode == ReshardMode::group;
  return hpz && !s.fsdp().keep_group_shard ? lost("secondary shards are kept to the end of the step") : same();
}

Said cpu_offload(const ExportSource& s) {
  if (!s.offloads()) return same();
  if (stage(s) == 0) return lost("all state is in the device's memory");
  if (s.fsdp().cpu_offload == config::CpuOffload::optimizer) return written("offload_optimizer");
  return stage(s) == 3 ? written("offload_optimizer and offload_param")
                       : roughly("offload_optimizer: shards stay on the device below stage 3");
}

Said reduce_lane(const ExportSource& s) {
  switch (s.fsdp().reduce_lane) {
    case config::ReduceLane::compute: return written("overlap_comm = false");
    case config::ReduceLane::reduce_scatter:
      if (stage(s) == 1) return roughly("overlap_comm = true: gradients are then reduced as they come");
      return written("overlap_comm = true");
    case config::ReduceLane::all_gather: break;
  }
  return roughly("overlap_comm = true: a stream of their own");
}

Said param_dtype(const ExportSource& s) {
  return s.fsdp().param_dtype == DType::bf16 ? written("bf16.enabled = true") : same();
}
Said reduce_dtype(const ExportSource& s) {
  return written(fmt::format("communication_data_type = {}", s.fsdp().reduce_dtype == DType::bf16 ? "bf16" : "fp32"));
}

Said wrap(const ExportSource&) { return lost("each submodule with parameters is fetched by itself"); }

Said accumulate(const ExportSource&) { return written("gradient_accumulation_steps"); }
Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  const bool once = s.config.train.accumulate_mode == config::AccumulateMode::no_sync;
  if (stage(s) <= 1) return once ? same() : lost("gradients are reduced at the last microbatch");
  return once ? lost("gradients are reduced in every microbatch; engine.no_sync() is for stages 0 and 1") : same();
}

Said batch(const ExportSource&) { return written("train_micro_batch_size_per_gpu"); }
Said optimizer(const ExportSource&) { return written("optimizer"); }
Said clip_norm(const ExportSource&) { return written("gradient_clipping"); }

Said checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing
             ? yours("your model's: gradient_checkpointing_enable() or deepspeed.checkpointing")
             : same();
}

Said recompute_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  return yours("your model's, too: it calls its blocks");
}

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.shard", shard},
    {"mesh.replicate", shard},
    {"train.batch_per_rank", batch},
    {"train.accumulate", accumulate},
    {"train.accumulate_mode", accumulate_mode},
    {"train.optimizer", optimizer},
    {"train.learning_rate", optimizer},
    {"train.beta1", optimizer},
    {"train.beta2", optimizer},
    {"train.epsilon", optimizer},
    {"train.weight_decay", optimizer},
    {"train.clip_norm", clip_norm},
    {"fsdp.strategy", strategy},
    {"fsdp.layout", nullptr, "each parameter is flattened and split, a bucket of them gathered through one buffer"},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.all_gather_limit", nullptr, "the host waits for the oldest of more than two fetches"},
    {"fsdp.learn_execution_order", nullptr, "the first step records the order"},
    {"fsdp.wrap", wrap},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.gradient_scaling", nullptr, "gradients are divided by the number of ranks before the sum"},
    {"fsdp.activation_checkpointing", checkpointing},
    {"fsdp.checkpoint_every", recompute_every},
    {"fsdp.shard_threshold", shard_threshold},
    {"fsdp.max_live_parameters", max_live_parameters},
    {"fsdp.max_reuse_distance", max_reuse_distance},
    {"fsdp.persistence_threshold", persistence_threshold},
    {"fsdp.reduce_bucket", reduce_bucket},
    {"fsdp.reduce_by", reduce_by},
    {"fsdp.reduce_lane", reduce_lane},
    {"fsdp.keep_group_shard", keep_group_shard},
    {"fsdp.gather_quantization", gather_quantization},
    {"fsdp.reduce_quantization", reduce_quantization},
    {"fsdp.reduce_within", reduce_within},
    {"fsdp.cpu_offload", cpu_offload},
    {"fsdp.reductions_in_flight", nullptr, "the host waits for the oldest of more than two reductions"},
});

ordered_json zero_part(const ExportSource& s) {
  const int which = stage(s);
  ordered_json part{{"stage", which}};
  if (which == 0) return part;
  part["reduce_bucket_size"] = reduce_bucket_size(s);
  part["overlap_comm"] = s.fsdp().reduce_lane != config::ReduceLane::compute;
  part["contiguous_gradients"] = true;
  const ordered_json to_host{{"device", "cpu"}, {"pin_memory", true}};
  if (s.offloads()) part["offload_optimizer"] = to_host;
  if (s.fsdp().cpu_offload == config::CpuOffload::all && which == 3) part["offload_param"] = to_host;
  if (which < 3) {
    part["use_multi_rank_bucket_allreduce"] = s.fsdp().reduce_by == config::ReduceBy::all_reduce;
    return part;
  }
  part["reduce_scatter"] = s.fsdp().reduce_by == config::ReduceBy::reduce_scatter;
  part["stage3_prefetch_bucket_size"] = prefetch_bucket(s);
  part["stage3_max_live_parameters"] = max_live(s);
  part["stage3_max_reuse_distance"] = max_reuse(s);
  part["stage3_param_persistence_threshold"] = persistence(s);
  if (secondary(s) > 1) part["zero_hpz_partition_size"] = secondary(s);
  if (s.fsdp().gather_quantization.on()) part["zero_quantized_weights"] = true;
  if (s.fsdp().reduce_quantization.on()) part["zero_quantized_gradients"] = true;
  return part;
}

ordered_json optimizer_part(const config::Train& train) {
  if (train.optimizer == config::Optimizer::sgd)
    return {{"type", "SGD"}, {"params", {{"lr", train.learning_rate}, {"weight_decay", train.weight_decay}}}};
  return {{"type", "AdamW"},
          {"params",
           {{"lr", train.learning_rate},
            {"betas", {train.beta1, train.beta2}},
            {"eps", train.epsilon},
            {"weight_decay", train.weight_decay}}}};
}

/// DeepSpeed reads the keys that it knows at the top and leaves others alone, so the notes may be one.
std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  const config::Train& train = s.config.train;
  ordered_json out{{"_comment", notes},
                   {"train_micro_batch_size_per_gpu", train.batch_per_rank},
                   {"gradient_accumulation_steps", train.accumulate},
                   {"gradient_clipping", train.clip_norm}};
  out["bf16"] = {{"enabled", s.fsdp().param_dtype == DType::bf16}};
  out["communication_data_type"] = s.fsdp().reduce_dtype == DType::bf16 ? "bf16" : "fp32";
  out["zero_optimization"] = zero_part(s);
  if (train.optimizer == config::Optimizer::sgd) out["zero_allow_untested_optimizer"] = true;
  out["optimizer"] = optimizer_part(train);
  return {{"deepspeed.json", out.dump(2) + '\n'}};
}

}  // namespace zero
}  // namespace

Dialect deepspeed() {
  return {.name = "deepspeed",
          .system = "DeepSpeed 0.19's ZeRO",
          .what = "a JSON configuration of ZeRO: deepspeed.json",
          .engine = zero::engine,
          .rules = zero::kRules,
          .write = zero::write};
}

}  // namespace fsdpbench::dialects
