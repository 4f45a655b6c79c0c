// Words of Megatron-FSDP: flags of Megatron-LM (megatron/training/arguments.py), and arguments of fully_shard_model in
// the megatron-fsdp package, which has fewer.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/validate.h"
#include "dialects/key_rules.h"

namespace fsdpbench::dialects {
namespace {
namespace megatron {

using config::AllGatherLimit;
using config::Prefetch;
using config::Strategy;

/// The rewrite frees on the gathers' lane; it has one strategy and no sizes to set.
bool is_rewrite(const config::RunConfig& config) { return config.fsdp.free_lane == config::FreeLane::all_gather; }
bool is_rewrite(const ExportSource& s) { return is_rewrite(s.config); }

std::string_view engine(const config::RunConfig& config) { return is_rewrite(config) ? "megatron-v2" : "megatron-v1"; }

/// Of Megatron-LM and, by number, of fully_shard_model.
struct Sharding {
  std::string_view word;
  int stage;
};
Sharding sharding(const ExportSource& s) {
  if (s.fsdp().strategy == Strategy::no_shard) return {"no_shard", 0};
  if (frees_after_forward(s)) return {"optim_grads_params", 3};
  if (s.config.train.accumulate_mode == config::AccumulateMode::no_sync && s.config.train.accumulate > 1)
    return {"optim", 1};
  return {"optim_grads", 2};
}

/// The first version's one size: half of it is prefetched, all of it may wait to be reduced.
std::int64_t communication_unit(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (prefetch.mode == Prefetch::Mode::none) return 1;
  if (prefetch.mode == Prefetch::Mode::window) return 2 * prefetch.elements;
  return 2 * std::max(1, units_ahead(s, prefetch)) * s.largest_unit();
}
bool says_unit(const ExportSource& s) {
  return !is_rewrite(s) && s.fsdp().forward_prefetch != s.reference.fsdp.forward_prefetch;
}

/// From ZeRO-2 on Megatron turns both overlaps on, whatever its flags say.
bool overlaps(const ExportSource& s) {
  return sharding(s).stage >= 2 || s.fsdp().reduce_lane != config::ReduceLane::compute;
}
bool double_buffer(const ExportSource& s) { return s.fsdp().all_gather_limit.mode == AllGatherLimit::Mode::buffers; }
bool registers(const ExportSource& s) { return s.config.nccl.register_buffers != config::NcclRegister::none; }

Said strategy(const ExportSource& s) {
  return written(fmt::format("--data-parallel-sharding-strategy {}", sharding(s).word));
}

Said replicas(const ExportSource& s) {
  if (!config::is_hybrid(s.fsdp().strategy)) return same();
  return written(fmt::format("--num-distributed-optimizer-instances {}", s.config.mesh.replicate));
}

Said reshard_after_forward(const ExportSource& s) {
  switch (s.fsdp().reshard_after_forward.mode) {
    case config::ReshardAfterForward::Mode::automatic: return same();
    case config::ReshardAfterForward::Mode::never: return strategy(s);
    case config::ReshardAfterForward::Mode::always:
      return is_rewrite(s) ? same() : roughly("embedding and head stay to the end");
    case config::ReshardAfterForward::Mode::group: break;
  }
  return lost("a freed unit is gathered from the whole shard group again");
}

Said prefetch(const ExportSource& s, const Prefetch& wanted, const Prefetch& theirs) {
  if (wanted == theirs) return same();
  if (is_rewrite(s)) return lost("one unit ahead (v2); SchedulePolicy sets a size where one calls fully_shard oneself");
  const std::string word = fmt::format("--suggested-communication-unit-size {}", communication_unit(s));
  if (wanted == s.fsdp().forward_prefetch) {
    if (wanted.mode == Prefetch::Mode::window) return written(word);
    if (wanted.mode == Prefetch::Mode::none) return roughly(word + ", which also leaves one reduction alive at a time");
  }
  return roughly(word + ": half of it is the window, in forward and in backward");
}
Said forward_prefetch(const ExportSource& s) {
  return prefetch(s, s.fsdp().forward_prefetch, s.reference.fsdp.forward_prefetch);
}
Said backward_prefetch(const ExportSource& s) {
  return prefetch(s, s.fsdp().backward_prefetch, s.reference.fsdp.backward_prefetch);
}

Said all_gather_limit(const ExportSource& s) {
  const AllGatherLimit& limit = s.fsdp().all_gather_limit;
  if (limit.mode == AllGatherLimit::Mode::unlimited) return same();
  if (!double_buffer(s)) return lost("nothing limits gathers but the size of the window");
  return limit.count == 2 ? written("--fsdp-double-buffer") : roughly("--fsdp-double-buffer, which is two");
}

Said separate_comm(const ExportSource& s) {
  return s.fsdp().separate_reduce_scatter_comm ? written("--create-all-gather-group") : same();
}

Said reduce_scatter_elements(const ExportSource& s) {
  if (is_rewrite(s) || s.fsdp().reduce_scatter_elements == s.reference.fsdp.reduce_scatter_elements) return same();
  if (says_unit(s) && s.fsdp().reduce_scatter_elements == communication_unit(s))
    return written("--suggested-communication-unit-size");
  return lost(says_unit(s)
                  ? "as many elements as --suggested-communication-unit-size"
                  : "at least 1000000000 elements (--suggested-communication-unit-size, which also sets the window)");
}

Said reduce_lane(const ExportSource& s) {
  switch (s.fsdp().reduce_lane) {
    case config::ReduceLane::reduce_scatter: return same();
    case config::ReduceLane::compute:
      return overlaps(s) ? lost("reductions overlap, from ZeRO-2 on whatever the flags say")
                         : written("no --overlap-grad-reduce");
    case config::ReduceLane::all_gather: break;
  }
  return lost("a stream of their own; unify_communication_stream is v2's, where one calls fully_shard oneself");
}

Said wrap(const ExportSource& s) {
  if (s.fsdp().wrap.mode == config::Wrap::Mode::block)
    return written("transformer layers are units (fsdp_unit_modules)");
  return lost("each transformer layer is a unit (fsdp_unit_modules names classes)");
}

Said param_dtype(const ExportSource& s) { return s.fsdp().param_dtype == DType::bf16 ? written("--bf16") : same(); }
Said reduce_dtype(const ExportSource& s) {
  return written(s.fsdp().reduce_dtype == DType::bf16 ? "--megatron-fsdp-grad-comm-dtype bf16"
                                                      : "--megatron-fsdp-grad-comm-dtype fp32");
}

Said gradient_scaling(const ExportSource& s) {
  switch (s.fsdp().gradient_scaling) {
    case config::GradientScaling::average: return written("--ddp-average-in-collective");
    case config::GradientScaling::sum: return roughly("gradients are divided by the ranks before the sum, not after");
    case config::GradientScaling::pre_post_divide: break;
  }
  return lost("gradients are divided by the ranks before the sum");
}

bool recomputes_a_module(const ExportSource& s) {
  return s.fsdp().activation_checkpointing && config::checkpoints_a_module(s.fsdp().checkpoint_keeps);
}
std::string recompute_flags(const ExportSource& s) {
  const std::int64_t every = s.fsdp().checkpoint_every;
  if (recomputes_a_module(s)) {
    const bool attends = s.fsdp().checkpoint_keeps == config::CheckpointKeeps::all_but_attention;
    return fmt::format("--recompute-granularity selective --recompute-modules {}", attends ? "core_attn"
                                                                                   : s.config.model.experts > 0
                                                                                       ? "moe"
                                                                                       : "mlp");
  }
  return every == 1 ? "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
                    : fmt::format("--recompute-granularity full --recompute-method block --recompute-num-layers {}",
                                  (s.config.model.layers + every - 1) / every);
}

Said checkpointing(const ExportSource& s) {
  return s.fsdp().activation_checkpointing ? written(recompute_flags(s)) : same();
}
Said checkpoint_keeps(const ExportSource& s) {
  if (recomputes_a_module(s)) return written(recompute_flags(s));
  const bool kept = s.fsdp().checkpoint_keeps != config::CheckpointKeeps::nothing;
  if (!s.fsdp().activation_checkpointing || !kept) return same();
  return lost("a checkpointed layer is recomputed whole, or one module of it");
}
Said checkpoint_every(const ExportSource& s) {
  if (!s.fsdp().activation_checkpointing || s.fsdp().checkpoint_every == 1) return same();
  if (recomputes_a_module(s)) return lost("--recompute-granularity selective is of every layer");
  const std::int64_t every = s.fsdp().checkpoint_every;
  return roughly(fmt::format("--recompute-method block --recompute-num-layers {}: the first ones, not every {}th",
                             (s.config.model.layers + every - 1) / every, every));
}

Said register_buffers(const ExportSource& s) {
  switch (s.config.nccl.register_buffers) {
    case config::NcclRegister::none: return same();
    case config::NcclRegister::local: return written("--use-nccl-ub --disable-symmetric-registration");
    case config::NcclRegister::window: break;
  }
  return written("--use-nccl-ub");
}

Said flag(const ExportSource&) { return written("a flag of Megatron-LM"); }
Said accumulate(const ExportSource& s) {
  return written(fmt::format("--global-batch-size {}",
                             s.config.train.batch_per_rank * s.config.train.accumulate * s.config.mesh.ranks));
}
Said batch_global(const ExportSource& s) { return s.config.train.batch_global == 0 ? same() : accumulate(s); }
Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  const bool last_only = sharding(s).stage <= 1;
  switch (s.config.train.accumulate_mode) {
    case config::AccumulateMode::reduce_each:
      return last_only ? lost("gradients are reduced at the last microbatch") : same();
    case config::AccumulateMode::no_sync:
      return last_only ? written(strategy(s).text) : lost("gradients are reduced in every microbatch");
    case config::AccumulateMode::reduce_scatter_only: break;
  }
  return roughly("--outer-dp-sharding-strategy no_shard: replicas are reduced at the last microbatch");
}

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.shard", replicas},
    {"mesh.replicate", replicas},
    {"train.seq_len", flag},
    {"train.batch_per_rank", flag},
    {"train.batch_global", batch_global},
    {"train.accumulate", accumulate},
    {"train.accumulate_mode", accumulate_mode},
    {"train.optimizer", flag},
    {"train.learning_rate", flag},
    {"train.beta1", flag},
    {"train.beta2", flag},
    {"train.epsilon", flag},
    {"train.weight_decay", flag},
    {"train.clip_norm", flag},
    {"fsdp.strategy", strategy},
    {"fsdp.layout", nullptr, "a unit's parameters lie in one flat buffer"},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.all_gather_limit", all_gather_limit},
    {"fsdp.separate_reduce_scatter_comm", separate_comm},
    {"fsdp.reduce_scatter_elements", reduce_scatter_elements},
    {"fsdp.reduce_lane", reduce_lane},
    {"fsdp.wrap", wrap},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.gradient_scaling", gradient_scaling},
    {"fsdp.activation_checkpointing", checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
    {"fsdp.checkpoint_keeps", checkpoint_keeps},
    {"nccl.register_buffers", register_buffers},
});

std::string flags(const ExportSource& s) {
  const config::Fsdp& fsdp = s.fsdp();
  const config::Train& train = s.config.train;
  std::string text = "MEGATRON_FSDP_ARGS=(\n";
  const auto add = [&](const std::string& line) { text += "  " + line + '\n'; };
  add(is_rewrite(s) ? "--use-megatron-fsdp --megatron-fsdp-version 2"
                    : "--use-megatron-fsdp --use-distributed-optimizer");
  add(strategy(s).text);
  if (!replicas(s).text.empty()) add(replicas(s).text + " --outer-dp-sharding-strategy no_shard");
  add("--ckpt-format fsdp_dtensor --no-gradient-accumulation-fusion");
  if (overlaps(s)) add("--overlap-param-gather --overlap-grad-reduce");
  if (says_unit(s)) add(fmt::format("--suggested-communication-unit-size {}", communication_unit(s)));
  if (double_buffer(s)) add("--fsdp-double-buffer");
  if (fsdp.separate_reduce_scatter_comm) add("--create-all-gather-group");
  if (registers(s)) add(register_buffers(s).text);
  if (fsdp.gradient_scaling == config::GradientScaling::average) add("--ddp-average-in-collective");
  if (fsdp.param_dtype == DType::bf16) add("--bf16");
  add(reduce_dtype(s).text);
  if (fsdp.activation_checkpointing) add(recompute_flags(s));
  add(fmt::format("--seq-length {} --micro-batch-size {} {}", train.seq_len, train.batch_per_rank, accumulate(s).text));
  if (train.optimizer == config::Optimizer::sgd) {
    add(fmt::format("--optimizer sgd --lr {} --weight-decay {}", train.learning_rate, train.weight_decay));
  } else {
    add(fmt::format("--optimizer adam --lr {} --adam-beta1 {} --adam-beta2 {} --adam-eps {} --weight-decay {}",
                    train.learning_rate, train.beta1, train.beta2, train.epsilon, train.weight_decay));
  }
  add(fmt::format("--clip-grad {}", train.clip_norm));
  return text + ")\n";
}

std::string call(const ExportSource& s) {
  const config::Mesh& mesh = s.config.mesh;
  const bool hybrid = config::is_hybrid(s.fsdp().strategy);
  std::string text =
      hybrid ? fmt::format("MESH = ({}, {}), (\"replicate\", \"shard\")  # init_device_mesh(\"cuda\", *MESH)\n",
                           mesh.replicate, mesh.shard)
             : fmt::format("MESH = ({},), (\"shard\",)  # init_device_mesh(\"cuda\", *MESH)\n", mesh.ranks);
  text += R"(

def apply_fsdp(model, mesh, unit_modules):
    """`unit_modules`: the classes of blocks, or their names."""
    return fully_shard_model(
        model,
        device_mesh=mesh,
)";
  const auto argument = [&](std::string_view name, std::string_view value) {
    text += fmt::format("        {}={},\n", name, value);
  };
  argument("dp_shard_dim", "\"shard\"");
  if (hybrid) argument("dp_outer_dim", "\"replicate\"");
  argument("fsdp_unit_modules", "unit_modules");
  argument("zero_dp_strategy", std::to_string(sharding(s).stage));
  argument("mixed_precision_policy",
           fmt::format("MixedPrecisionPolicy(grad_comm_dtype={})", torch_dtype(s.fsdp().reduce_dtype)));
  argument("overlap_param_gather", python(overlaps(s)));
  argument("overlap_grad_reduce", python(overlaps(s)));
  argument("average_in_collective", python(s.fsdp().gradient_scaling == config::GradientScaling::average));
  if (double_buffer(s) || registers(s)) argument("fsdp_double_buffer", "True");
  if (registers(s)) {
    argument("nccl_ub", "True");
    argument("disable_symmetric_registration", python(s.config.nccl.register_buffers == config::NcclRegister::local));
  }
  return text + "    )\n";
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  const std::string head = commented("#", notes);
  const std::string dtype =
      s.fsdp().param_dtype == DType::bf16 ? "model.bfloat16() before this; masters stay fp32.\n" : "";
  return {
      {"megatron_lm.sh", head + "\n" + flags(s)},
      {"megatron_fsdp.py",
       head + "#\n# The package megatron-fsdp without Megatron-LM: window and reductions have no argument there.\n" +
           (dtype.empty() ? "" : "# " + dtype) +
           "\nimport torch\nfrom megatron_fsdp import MixedPrecisionPolicy, fully_shard_model\n\n" + call(s)}};
}

}  // namespace megatron
}  // namespace

Dialect megatron_fsdp() {
  return {.name = "megatron-fsdp",
          .system = "Megatron-LM's Megatron-FSDP (August 2026; package megatron-fsdp 0.6)",
          .what = "flags for Megatron-LM, and a call of fully_shard_model: megatron_lm.sh, megatron_fsdp.py",
          .engine = megatron::engine,
          .rules = megatron::kRules,
          .write = megatron::write};
}

}  // namespace fsdpbench::dialects
