// Words of torch.distributed.fsdp.FullyShardedDataParallel. What each does to the order of collectives was recorded:
// tests/peer runs the exported scripts.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/validate.h"
#include "dialects/key_rules.h"
#include "dialects/pytorch_script.h"

namespace fsdpbench::dialects {
namespace {
namespace fsdp1 {

using config::AccumulateMode;
using config::AllGatherLimit;
using config::Prefetch;
using config::Strategy;
using ReshardMode = config::ReshardAfterForward::Mode;

/// The strategy decides what is freed after forward; there is no switch beside it.
Strategy chosen_strategy(const ExportSource& s) {
  const bool hybrid = config::is_hybrid(s.fsdp().strategy);
  if (s.fsdp().strategy == Strategy::no_shard) return Strategy::no_shard;
  if (frees_after_forward(s)) return hybrid ? Strategy::hybrid_shard : Strategy::full_shard;
  return hybrid ? Strategy::hybrid_shard_grad_op : Strategy::shard_grad_op;
}

std::string_view word(Strategy strategy) {
  switch (strategy) {
    case Strategy::no_shard: return "NO_SHARD";
    case Strategy::shard_grad_op: return "SHARD_GRAD_OP";
    case Strategy::full_shard: return "FULL_SHARD";
    case Strategy::hybrid_shard: return "HYBRID_SHARD";
    case Strategy::hybrid_shard_grad_op: break;
  }
  return "_HYBRID_SHARD_ZERO2";
}

/// "BACKWARD_PRE", "BACKWARD_POST" or "None".
std::string_view backward_word(const ExportSource& s) {
  const Prefetch::Mode mode = s.fsdp().backward_prefetch.mode;
  if (mode == Prefetch::Mode::none) return "None";
  return mode == Prefetch::Mode::post ? "BackwardPrefetch.BACKWARD_POST" : "BackwardPrefetch.BACKWARD_PRE";
}

bool groups_blocks(const ExportSource& s) {
  const std::vector<int> counts = s.blocks_of_units();
  return std::ranges::any_of(counts, [](int count) { return count > 1; });
}

Said mesh(const ExportSource& s) {
  return written(config::is_hybrid(s.fsdp().strategy) ? "device_mesh of replicate x shard" : "device_mesh");
}

Said strategy(const ExportSource& s) {
  return s.fsdp().strategy == Strategy::full_shard && chosen_strategy(s) == Strategy::full_shard
             ? same()
             : written(fmt::format("ShardingStrategy.{}", word(chosen_strategy(s))));
}

Said reshard_after_forward(const ExportSource& s) {
  switch (s.fsdp().reshard_after_forward.mode) {
    case ReshardMode::automatic: return same();
    case ReshardMode::never: return written(fmt::format("ShardingStrategy.{}", word(chosen_strategy(s))));
    case ReshardMode::always:
      return roughly(fmt::format("ShardingStrategy.{}, which keeps the root", word(chosen_strategy(s))));
    case ReshardMode::group: break;
  }
  return lost(fmt::format("a freed unit is gathered from the whole shard group again (ShardingStrategy.{})",
                          word(chosen_strategy(s))));
}

Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  switch (s.config.train.accumulate_mode) {
    case AccumulateMode::reduce_each: return same();
    case AccumulateMode::no_sync: return written("no_sync()");
    case AccumulateMode::reduce_scatter_only: break;
  }
  return lost("every microbatch is all-reduced across replicas");
}

Said forward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (prefetch.mode == Prefetch::Mode::implicit) return same();
  if (prefetch.mode == Prefetch::Mode::none)
    return lost("each unit is gathered as soon as the host reaches it and the limit allows");
  if (is_one_unit_ahead(prefetch)) return written("forward_prefetch=True");
  return roughly("forward_prefetch=True, which is one unit ahead");
}

Said backward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().backward_prefetch;
  if (prefetch.mode == Prefetch::Mode::pre) return same();
  if (prefetch.mode == Prefetch::Mode::none || prefetch.mode == Prefetch::Mode::post || is_one_unit_ahead(prefetch))
    return written(fmt::format("backward_prefetch={}", backward_word(s)));
  return roughly("BACKWARD_PRE, which is one unit ahead");
}

Said all_gather_limit(const ExportSource& s) {
  const AllGatherLimit& limit = s.fsdp().all_gather_limit;
  if (limit.mode == AllGatherLimit::Mode::unlimited) return written("limit_all_gathers=False");
  if (limit.mode != AllGatherLimit::Mode::fsdp1_queue)
    return lost("the host waits for the second last free before each gather (limit_all_gathers=True, fsdp1_queue:2)");
  if (limit.count == 2) return same();
  return written(fmt::format("_free_event_queue._max_num_inflight_all_gathers = {}, which is private", limit.count));
}

Said wrap(const ExportSource& s) {
  if (s.fsdp().wrap.mode == config::Wrap::Mode::model) return written("no auto_wrap_policy");
  if (!groups_blocks(s)) return written("auto_wrap_policy");
  return roughly("auto_wrap_policy over Group modules that take the place of the blocks; names of parameters change");
}

Said param_dtype(const ExportSource& s) {
  if (s.fsdp().param_dtype == DType::f32 && s.fsdp().reduce_dtype == DType::f32) return same();
  return written(fmt::format("MixedPrecision(param_dtype={})", torch_dtype(s.fsdp().param_dtype)));
}
Said reduce_dtype(const ExportSource& s) {
  if (s.fsdp().param_dtype == DType::f32 && s.fsdp().reduce_dtype == DType::f32) return same();
  return written(fmt::format("MixedPrecision(reduce_dtype={})", torch_dtype(s.fsdp().reduce_dtype)));
}

Said cpu_offload(const ExportSource& s) {
  const std::string word = "CPUOffload(offload_params=True)";
  const bool adds = s.config.train.accumulate > 1 && s.config.train.accumulate_mode != AccumulateMode::no_sync;
  if (s.offloads() && adds) return roughly(word + ", which keeps the gradient of the last microbatch alone");
  return offloads_all(s, word);
}

constexpr std::array kRules = std::to_array<KeyRule>({
    {"mesh.ranks", mesh},
    {"mesh.shard", mesh},
    {"mesh.replicate", mesh},
    {"train.accumulate", in_the_script},
    {"train.accumulate_mode", accumulate_mode},
    {"train.optimizer", in_the_script},
    {"train.learning_rate", in_the_script},
    {"train.beta1", in_the_script},
    {"train.beta2", in_the_script},
    {"train.epsilon", in_the_script},
    {"train.weight_decay", in_the_script},
    {"train.clip_norm", in_the_script},
    {"fsdp.strategy", strategy},
    {"fsdp.layout", nullptr, "a unit's parameters are one flat parameter, split into equal parts"},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.reshard_after_backward", nullptr, "units are freed after each microbatch that is reduced"},
    {"fsdp.keep_unreduced", nullptr, "no_sync() keeps what the strategy does not free after forward"},
    {"fsdp.wait_each_backward", nullptr, "computation waits for all reductions at the end of each backward"},
    {"fsdp.gradients_after_views", nullptr,
     "autograd goes back from the views that a gather made: a prefetched unit is freed and reduced a block later"},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.learn_execution_order", nullptr, "the first step learns the order"},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.all_gather_limit", all_gather_limit},
    {"fsdp.reduce_scatter_buffers", nullptr, "inputs of reductions are as many as there are"},
    {"fsdp.separate_reduce_scatter_comm", nullptr, "gathers and reductions share a communicator"},
    {"fsdp.wrap", wrap},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.gradient_scaling", nullptr, "gradients are divided before the sum and after it"},
    {"fsdp.activation_checkpointing", activation_checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
    {"fsdp.checkpoint_keeps", checkpoint_keeps},
    {"fsdp.head_unit", nullptr, "norm and head are in the root: a unit is one module"},
    {"fsdp.cpu_offload", cpu_offload},
});

std::string imports(const ExportSource& s) {
  std::string text = s.config.train.accumulate_mode == AccumulateMode::no_sync ? "import contextlib\n" : "";
  if (s.fsdp().activation_checkpointing) text += "import functools\n";
  text += fmt::format("{}import torch\nfrom torch import nn\n", text.empty() ? "" : "\n");
  text += python_checkpoint_imports(s);
  return text +
         "from torch.distributed.device_mesh import init_device_mesh\n"
         "from torch.distributed.fsdp import (\n"
         "    BackwardPrefetch, " +
         std::string(s.offloads() ? "CPUOffload, " : "") +
         "FullyShardedDataParallel, MixedPrecision, ShardingStrategy)\n"
         "from torch.distributed.fsdp.wrap import CustomPolicy\n" +
         python_policy_imports(s);
}

/// Blocks that are one unit need a module of their own, in their place.
std::string groups(const ExportSource& s) {
  if (!groups_blocks(s)) return "";
  return R"(
class Group(nn.Module):
    """Blocks that are one unit: called as a block is."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x, *args, **kwargs):
        for block in self.blocks:
            x = block(x, *args, **kwargs)
        return x


def group_blocks(model):
    """Puts groups into the place of the blocks, and returns them. The model must call its blocks one after another."""
    blocks = blocks_of(model)
    rest = iter(blocks)
    units = [Group([next(rest) for _ in range(count)]) for count in BLOCKS_OF_UNITS]
    owner, name = next((module, name) for module in model.modules() for name, child in module.named_children()
                       if isinstance(child, nn.ModuleList) and list(child) == blocks)
    setattr(owner, name, nn.ModuleList(units))
    return units

)";
}

std::string apply(const ExportSource& s) {
  const config::Fsdp& fsdp = s.fsdp();
  std::string text = "\ndef apply_fsdp(model, mesh):\n";
  if (fsdp.activation_checkpointing) text += "    checkpoint_blocks(model)\n";
  const bool one_unit = fsdp.wrap.mode == config::Wrap::Mode::model;
  if (!one_unit) {
    text += fmt::format("    units = set({}(model))\n", groups_blocks(s) ? "group_blocks" : "blocks_of");
  }
  text += "    device = torch.device(mesh.device_type)\n";
  text += "    model = FullyShardedDataParallel(\n        model,\n";
  const auto argument = [&](std::string_view name, std::string_view value) {
    text += fmt::format("        {}={},\n", name, value);
  };
  argument("device_id", "device if device.type == \"cpu\" else torch.accelerator.current_device_index()");
  argument("device_mesh", "mesh");
  argument("sharding_strategy", fmt::format("ShardingStrategy.{}", word(chosen_strategy(s))));
  argument("backward_prefetch", backward_word(s));
  argument("forward_prefetch", python(prefetches_forward(s)));
  argument("limit_all_gathers", python(fsdp.all_gather_limit.mode != AllGatherLimit::Mode::unlimited));
  if (fsdp.param_dtype != DType::f32 || fsdp.reduce_dtype != DType::f32) {
    argument("mixed_precision", fmt::format("MixedPrecision(param_dtype={}, reduce_dtype={})",
                                            torch_dtype(fsdp.param_dtype), torch_dtype(fsdp.reduce_dtype)));
  }
  if (s.offloads()) argument("cpu_offload", "CPUOffload(offload_params=True)");
  if (!one_unit) argument("auto_wrap_policy", "CustomPolicy(lambda module: module in units)");
  argument("use_orig_params", "True");
  text += "    )\n";
  const AllGatherLimit& limit = fsdp.all_gather_limit;
  if (limit.mode == AllGatherLimit::Mode::fsdp1_queue && limit.count != 2) {
    text += fmt::format(
        "    for module in FullyShardedDataParallel.fsdp_modules(model):  # not a public name of PyTorch\n"
        "        module._free_event_queue._max_num_inflight_all_gathers = {}\n",
        limit.count);
  }
  return text + "    return model\n\n";
}

std::string step(const ExportSource& s) {
  std::string text = R"(
def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
)";
  if (s.config.train.accumulate_mode == AccumulateMode::no_sync) {
    text += R"(    for i, batch in enumerate(microbatches):
        last = i + 1 == len(microbatches)
        with contextlib.nullcontext() if last else model.no_sync():
            (loss_of(model, batch) / len(microbatches)).backward()
)";
  } else {
    text += R"(    for batch in microbatches:
        (loss_of(model, batch) / len(microbatches)).backward()
)";
  }
  return text + python_update(s, fmt::format("    model.clip_grad_norm_({})\n", s.config.train.clip_norm));
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  return {{"pytorch_fsdp1.py", python_head(notes, imports(s)) + python_constants(s) + python_mesh(s) + python_blocks() +
                                   python_checkpointing(s) + groups(s) + apply(s) + python_optimizer(s) + step(s)}};
}

std::string_view engine(const config::RunConfig&) { return "fsdp1"; }

}  // namespace fsdp1
}  // namespace

Dialect pytorch_fsdp1() {
  return {.name = "pytorch-fsdp1",
          .system = "PyTorch 2.15's FullyShardedDataParallel (FSDP1)",
          .what = "a Python script: apply_fsdp(model, mesh), make_optimizer, train_step",
          .engine = fsdp1::engine,
          .rules = fsdp1::kRules,
          .write = fsdp1::write};
}

}  // namespace fsdpbench::dialects
