// Words of torch.distributed.fsdp.fully_shard. What each does to the order of collectives was recorded: tests/peer runs
// the exported scripts.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/validate.h"
#include "dialects/key_rules.h"
#include "dialects/pytorch_script.h"

namespace fsdpbench::dialects {
namespace {
namespace fsdp2 {

using config::AccumulateMode;
using config::Prefetch;
using config::Strategy;

/// Units that each hook gathers ahead: the root's first, then each unit's.
std::vector<int> depths(const ExportSource& s, const Prefetch& prefetch, bool forward) {
  const int units = static_cast<int>(s.plan.units.size()) - 1;
  std::vector<int> result(static_cast<std::size_t>(units) + 1, prefetch.depth);
  result.front() = 1;
  if (prefetch.mode == Prefetch::Mode::none) std::ranges::fill(result, 0);
  if (prefetch.mode == Prefetch::Mode::window || prefetch.mode == Prefetch::Mode::rate) {
    for (int u = 0; u <= units; ++u) {
      int ahead = 0;
      std::int64_t elements = 0;
      const int step = forward ? 1 : -1;
      for (int next = (u == 0 && !forward ? units + 1 : u) + step; next > 0 && next <= units; next += step) {
        if (elements >= prefetch.elements) break;
        elements += s.plan.units[static_cast<std::size_t>(next)].layout.parameter_numel();
        ++ahead;
      }
      result[static_cast<std::size_t>(u)] = ahead;
    }
  }
  if (!(forward ? s.fsdp().root_prefetches_forward : s.fsdp().root_prefetches_backward)) result.front() = 0;
  return result;
}

/// FSDP2 prefetches one unit in backward by itself, without a list.
bool lists_backward(const ExportSource& s) {
  const Prefetch::Mode mode = s.fsdp().backward_prefetch.mode;
  return mode != Prefetch::Mode::pre && mode != Prefetch::Mode::post;
}
bool root_list_backward(const ExportSource& s) {
  if (!s.fsdp().root_prefetches_backward) return true;
  return lists_backward(s) && depths(s, s.fsdp().backward_prefetch, false).front() != 1;
}

/// FSDP1's no_sync frees nothing where the strategy does not free after forward (schedule/policy.h).
bool keeps_unreduced(const ExportSource& s) {
  return s.fsdp().keep_unreduced && s.config.train.accumulate > 1 &&
         s.config.train.accumulate_mode == AccumulateMode::no_sync && !frees_after_forward(s);
}

bool mixed(const ExportSource& s) { return s.fsdp().param_dtype != DType::f32 || s.fsdp().reduce_dtype != DType::f32; }

std::string reshard_value(const ExportSource& s) {
  using Mode = config::ReshardAfterForward::Mode;
  switch (s.fsdp().reshard_after_forward.mode) {
    case Mode::always: return "True";
    case Mode::never: return "False";
    case Mode::group: return std::to_string(s.fsdp().reshard_after_forward.group);
    case Mode::automatic: break;
  }
  return frees_after_forward(s) || s.fsdp().strategy == Strategy::no_shard ? "" : "False";
}

Said mesh(const ExportSource& s) {
  const bool replicas = config::is_hybrid(s.fsdp().strategy) || s.fsdp().strategy == Strategy::no_shard;
  return written(replicas ? "a mesh of replicate x shard" : "a mesh of one axis");
}

Said strategy(const ExportSource& s) {
  switch (s.fsdp().strategy) {
    case Strategy::full_shard: return same();
    case Strategy::shard_grad_op: return written("reshard_after_forward=False");
    case Strategy::hybrid_shard: return written("a mesh of two axes");
    case Strategy::hybrid_shard_grad_op: return written("a mesh of two axes, reshard_after_forward=False");
    case Strategy::no_shard: break;
  }
  return roughly(
      "replicas of whole units, which are copied and freed all the same; DistributedDataParallel leaves them in place");
}

Said reshard_after_forward(const ExportSource& s) {
  if (s.fsdp().reshard_after_forward.mode == config::ReshardAfterForward::Mode::automatic) return same();
  return written(fmt::format("reshard_after_forward={}", reshard_value(s)));
}

Said reshard_after_backward(const ExportSource& s) {
  return s.fsdp().reshard_after_backward ? same() : written("set_reshard_after_backward(last)");
}

Said keep_unreduced(const ExportSource& s) {
  return keeps_unreduced(s) ? written("set_reshard_after_backward(last)") : same();
}

Said wait_each_backward(const ExportSource& s) {
  return s.fsdp().wait_each_backward ? same() : written("set_is_last_backward(last)");
}

Said accumulate_mode(const ExportSource& s) {
  if (s.config.train.accumulate == 1) return same();
  switch (s.config.train.accumulate_mode) {
    case AccumulateMode::reduce_each: return same();
    case AccumulateMode::no_sync: return written("set_requires_gradient_sync(last)");
    case AccumulateMode::reduce_scatter_only: return written("set_requires_all_reduce(last)");
  }
  return same();
}

/// A list of units that each unit prefetches, which is all that FSDP2 has beside its defaults.
Said listed(std::string_view call, Prefetch::Mode mode) {
  if (mode == Prefetch::Mode::explicit_ || mode == Prefetch::Mode::window) return written(std::string(call));
  if (mode == Prefetch::Mode::ahead)
    return roughly(fmt::format("{}, which gathers after the copy-out of the module itself", call));
  return roughly(fmt::format("{}: a fixed list a module, as many units as one hook asks for", call));
}

Said forward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().forward_prefetch;
  if (prefetch.mode == Prefetch::Mode::implicit) return same();
  if (prefetch.mode == Prefetch::Mode::none)
    return lost("each unit is gathered as soon as the host reaches it, which is ahead of the device");
  return listed("set_modules_to_forward_prefetch", prefetch.mode);
}

Said backward_prefetch(const ExportSource& s) {
  const Prefetch& prefetch = s.fsdp().backward_prefetch;
  if (prefetch.mode == Prefetch::Mode::pre) return same();
  if (prefetch.mode == Prefetch::Mode::post)
    return lost("the next unit is gathered before the backward of this one (pre); there is no post");
  if (prefetch.mode == Prefetch::Mode::none)
    return written("set_modules_to_backward_prefetch([itself]), which gathers nothing");
  return listed("set_modules_to_backward_prefetch", prefetch.mode);
}

Said root_prefetches_forward(const ExportSource& s) {
  const bool lists = prefetches_forward(s) && !s.fsdp().root_prefetches_forward;
  return lists ? written("no list of modules to prefetch in forward for the root") : same();
}

Said root_prefetches_backward(const ExportSource& s) {
  return s.fsdp().root_prefetches_backward
             ? same()
             : written("model.set_modules_to_backward_prefetch([model]), which gathers nothing");
}

/// As many as there are units bounds nothing.
int input_buffers(const ExportSource& s) {
  const int buffers = s.fsdp().reduce_scatter_buffers;
  return buffers > 0 ? buffers : static_cast<int>(s.plan.units.size());
}

Said reduce_scatter_buffers(const ExportSource& s) {
  const std::string call = fmt::format("set_reduce_scatter_max_input_buffers({})", input_buffers(s));
  switch (s.fsdp().reduce_scatter_buffers) {
    case 0: return roughly(call + ": one for each unit, all of them held to the end of backward");
    case 1: return same();
    default: return written(call);
  }
}

Said separate_comm(const ExportSource& s) {
  return s.fsdp().separate_reduce_scatter_comm ? written("set_separate_reduce_scatter_group()") : same();
}

Said wrap(const ExportSource& s) {
  return written(s.fsdp().wrap.mode == config::Wrap::Mode::model ? "fully_shard(model) alone" : "BLOCKS_OF_UNITS");
}

Said param_dtype(const ExportSource& s) {
  if (!mixed(s)) return same();
  return written(fmt::format("MixedPrecisionPolicy(param_dtype={})", torch_dtype(s.fsdp().param_dtype)));
}
Said reduce_dtype(const ExportSource& s) {
  if (!mixed(s)) return same();
  return written(fmt::format("MixedPrecisionPolicy(reduce_dtype={})", torch_dtype(s.fsdp().reduce_dtype)));
}

Said gradient_scaling(const ExportSource& s) {
  switch (s.fsdp().gradient_scaling) {
    case config::GradientScaling::average: return same();
    case config::GradientScaling::sum: return written("set_force_sum_reduction_for_comms(True)");
    case config::GradientScaling::pre_post_divide: break;
  }
  return lost("the collective averages; only fp16 is divided before and after");
}

Said gradient_divide_factor(const ExportSource& s) {
  const double factor = s.fsdp().gradient_divide_factor;
  return factor == 0 ? same() : written(fmt::format("set_gradient_divide_factor({})", factor));
}

Said shard_threshold(const ExportSource& s) {
  if (s.fsdp().shard_threshold == 0) return same();
  return roughly("ignored_params, whose gradients train_step() all-reduces after the last backward");
}

Said head_unit(const ExportSource& s) { return s.fsdp().head_unit ? written("fully_shard([norm, head])") : same(); }

Said cpu_offload(const ExportSource& s) { return offloads_all(s, "CPUOffloadPolicy()"); }

Said register_buffers(const ExportSource& s) {
  switch (s.config.nccl.register_buffers) {
    case config::NcclRegister::none: return same();
    case config::NcclRegister::local: return written("set_allocate_memory_from_process_group_for_comm(True)");
    case config::NcclRegister::window: return written("set_symm_mem_for_comm()");
  }
  return same();
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
    {"fsdp.layout", nullptr, "each parameter is split by rows, with a copy in and a copy out"},
    {"fsdp.reshard_after_forward", reshard_after_forward},
    {"fsdp.reshard_after_backward", reshard_after_backward},
    {"fsdp.keep_unreduced", keep_unreduced},
    {"fsdp.wait_each_backward", wait_each_backward},
    {"fsdp.forward_prefetch", forward_prefetch},
    {"fsdp.learn_execution_order", nullptr, "prefetch lists count from the first step on"},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.root_prefetches_forward", root_prefetches_forward},
    {"fsdp.root_prefetches_backward", root_prefetches_backward},
    {"fsdp.all_gather_limit", nullptr, "gathers wait on the device for the copy-out before last: two buffers"},
    {"fsdp.reduce_scatter_buffers", reduce_scatter_buffers},
    {"fsdp.separate_reduce_scatter_comm", separate_comm},
    {"fsdp.wrap", wrap},
    {"fsdp.param_dtype", param_dtype},
    {"fsdp.reduce_dtype", reduce_dtype},
    {"fsdp.gradient_scaling", gradient_scaling},
    {"fsdp.gradient_divide_factor", gradient_divide_factor},
    {"fsdp.activation_checkpointing", activation_checkpointing},
    {"fsdp.checkpoint_every", checkpoint_every},
    {"fsdp.checkpoint_keeps", checkpoint_keeps},
    {"fsdp.shard_threshold", shard_threshold},
    {"fsdp.head_unit", head_unit},
    {"fsdp.cpu_offload", cpu_offload},
    {"nccl.register_buffers", register_buffers},
});

/// Arguments of every fully_shard() call after `mesh`.
std::string arguments(const ExportSource& s) {
  std::string text;
  if (!reshard_value(s).empty()) text += fmt::format(", reshard_after_forward={}", reshard_value(s));
  if (mixed(s)) text += ", mp_policy=policy";
  if (s.offloads()) text += ", offload_policy=CPUOffloadPolicy()";
  if (s.fsdp().shard_threshold > 0) text += ", ignored_params=replicated";
  return text;
}

std::string helpers(const ExportSource& s) {
  std::string text;
  if (s.fsdp().head_unit) {
    text += R"(
def head_of(model):
    """What has parameters and comes after the blocks: the final norm and the head."""
    inside = {m for block in blocks_of(model) for m in block.modules()}
    order = list(model.modules())
    after = max(i for i, m in enumerate(order) if m in inside)
    return [m for m in order[after + 1:] if any(True for _ in m.parameters(recurse=False))]

)";
  }
  if (s.fsdp().shard_threshold > 0) {
    text += fmt::format(R"(
def by_size(model):
    """Parameters to be split, and those that are too small for that: every rank holds them whole."""
    parameters = list(model.parameters())
    return [p for p in parameters if p.numel() >= {0}], [p for p in parameters if p.numel() < {0}]

)",
                        s.fsdp().shard_threshold);
  }
  return text;
}

/// Everything that is set after the units are made, each line once.
std::string settings(const ExportSource& s) {
  const config::Fsdp& fsdp = s.fsdp();
  std::string text;
  if (input_buffers(s) != 1)
    text += fmt::format("    model.set_reduce_scatter_max_input_buffers({})\n", input_buffers(s));
  if (fsdp.separate_reduce_scatter_comm) text += "    model.set_separate_reduce_scatter_group(True)\n";
  std::string each;
  if (fsdp.gradient_scaling == config::GradientScaling::sum)
    each += "            module.set_force_sum_reduction_for_comms(True)\n";
  if (fsdp.gradient_divide_factor > 0) each += fmt::format("            module.{}\n", gradient_divide_factor(s).text);
  if (s.config.nccl.register_buffers != config::NcclRegister::none)
    each += fmt::format("            module.{}\n", register_buffers(s).text);
  if (!each.empty()) {
    text += "    for module in model.modules():\n        if isinstance(module, FSDPModule):\n" + each;
  }
  return text;
}

std::string imports(const ExportSource& s) {
  std::string text = s.fsdp().activation_checkpointing ? "import functools\n\n" : "";
  text += "import torch\n";
  if (s.fsdp().shard_threshold > 0) text += "import torch.distributed as dist\n";
  text += "from torch import nn\n";
  text += python_checkpoint_imports(s);
  text += "from torch.distributed.device_mesh import init_device_mesh\n";
  const bool each = settings(s).find("FSDPModule") != std::string::npos;
  return text +
         fmt::format("from torch.distributed.fsdp import {}{}{}fully_shard\n", s.offloads() ? "CPUOffloadPolicy, " : "",
                     each ? "FSDPModule, " : "", mixed(s) ? "MixedPrecisionPolicy, " : "") +
         python_policy_imports(s);
}

std::string prefetch_lists(const ExportSource& s) {
  std::string text;
  if (prefetches_forward(s)) {
    text += "    # Units to gather before a unit computes: those of the root, then those of each unit.\n";
    text += fmt::format("    ahead = {}\n", python_runs(depths(s, s.fsdp().forward_prefetch, true)));
    text += "    model.set_modules_to_forward_prefetch(units[:ahead[0]])\n";
    text += "    for i, unit in enumerate(units):\n";
    text += "        unit.set_modules_to_forward_prefetch(units[i + 1:i + 1 + ahead[i + 1]])\n";
  }
  const int of_root = depths(s, s.fsdp().backward_prefetch, false).front();
  if (root_list_backward(s) && of_root == 0) {
    text += "    # A module that is whole already is not gathered again: this turns PyTorch's own choice off.\n";
    text += "    model.set_modules_to_backward_prefetch([model])\n";
  } else if (root_list_backward(s)) {
    text += fmt::format("    model.set_modules_to_backward_prefetch(units[::-1][:{}])\n", of_root);
  }
  if (s.fsdp().backward_prefetch.mode == Prefetch::Mode::none) {
    text += "    for unit in units:\n        unit.set_modules_to_backward_prefetch([unit])\n";
  } else if (lists_backward(s)) {
    std::vector<int> behind = depths(s, s.fsdp().backward_prefetch, false);
    behind.erase(behind.begin());
    text += fmt::format("    behind = {}\n    for i, unit in enumerate(units):\n", python_runs(behind));
    text += "        unit.set_modules_to_backward_prefetch(units[:i][::-1][:behind[i]])\n";
  }
  return text;
}

std::string apply(const ExportSource& s) {
  const config::Fsdp& fsdp = s.fsdp();
  std::string text = "\ndef apply_fsdp(model, mesh):\n";
  if (fsdp.activation_checkpointing) text += "    checkpoint_blocks(model)\n";
  if (mixed(s)) {
    text += fmt::format("    policy = MixedPrecisionPolicy(param_dtype={}, reduce_dtype={})\n",
                        torch_dtype(fsdp.param_dtype), torch_dtype(fsdp.reduce_dtype));
  }
  if (fsdp.shard_threshold > 0) text += "    replicated = set(by_size(model)[1])\n";
  const std::string others = arguments(s);
  text += "    units = []\n";
  if (fsdp.wrap.mode != config::Wrap::Mode::model) {
    text += "    blocks = iter(blocks_of(model))\n    for count in BLOCKS_OF_UNITS:\n";
    text += "        unit = [next(blocks) for _ in range(count)]\n";
    text += fmt::format("        fully_shard(unit if count > 1 else unit[0], mesh=mesh{})\n", others);
    text += "        units.append(unit[0])\n";
    if (fsdp.head_unit) {
      text += fmt::format("    head = head_of(model)\n    fully_shard(head, mesh=mesh{})\n    units.append(head[0])\n",
                          others);
    }
  }
  text += fmt::format("    fully_shard(model, mesh=mesh{})\n", others);
  return text + settings(s) + prefetch_lists(s) + "    return model\n\n";
}

/// PyTorch updates several parameters at once, but not split and whole ones together.
std::string optimizer(const ExportSource& s) {
  if (s.fsdp().shard_threshold == 0) return python_optimizer(s);
  return python_optimizer(s, "[{\"params\": some} for some in by_size(model) if some]");
}

std::string step(const ExportSource& s) {
  std::string before;
  const auto set = [&](bool wanted, const char* call) {
    if (wanted && s.config.train.accumulate > 1) before += fmt::format("        model.{}(last)\n", call);
  };
  set(s.config.train.accumulate_mode == AccumulateMode::no_sync, "set_requires_gradient_sync");
  set(s.config.train.accumulate_mode == AccumulateMode::reduce_scatter_only, "set_requires_all_reduce");
  set(!s.fsdp().reshard_after_backward || keeps_unreduced(s), "set_reshard_after_backward");
  set(!s.fsdp().wait_each_backward, "set_is_last_backward");
  std::string text = R"(
def train_step(model, optimizer, microbatches, loss_of):
    """One update from MICROBATCHES batches; loss_of(model, batch) is the mean loss of one."""
)";
  text += before.empty()
              ? "    for batch in microbatches:\n"
              : "    for i, batch in enumerate(microbatches):\n        last = i + 1 == len(microbatches)\n" + before;
  text += "        (loss_of(model, batch) / len(microbatches)).backward()\n";
  if (s.fsdp().shard_threshold == 0) {
    return text + python_update(s, fmt::format("    torch.nn.utils.clip_grad_norm_(model.parameters(), {})\n",
                                               s.config.train.clip_norm));
  }
  text += R"(    sharded, replicated = by_size(model)
    for parameter in replicated:
        dist.all_reduce(parameter.grad.div_(dist.get_world_size()))
)";
  return text +
         python_update(
             s,
             fmt::format(
                 R"(    norms = [torch.nn.utils.get_total_norm([p.grad for p in some]) for some in (sharded, replicated) if some]
    norm = torch.stack([n.full_tensor() if hasattr(n, "full_tensor") else n for n in norms]).norm()
    for some in (sharded, replicated):
        torch.nn.utils.clip_grads_with_norm_(some, {}, norm)
)",
                 s.config.train.clip_norm));
}

std::vector<ExportFile> write(const ExportSource& s, const std::vector<std::string>& notes) {
  return {{"pytorch_fsdp2.py", python_head(notes, imports(s)) + python_constants(s) + python_mesh(s) + python_blocks() +
                                   python_checkpointing(s) + helpers(s) + apply(s) + optimizer(s) + step(s)}};
}

std::string_view engine(const config::RunConfig&) { return "fsdp2"; }

}  // namespace fsdp2
}  // namespace

Dialect pytorch_fsdp2() {
  return {.name = "pytorch-fsdp2",
          .system = "PyTorch 2.15's fully_shard (FSDP2)",
          .what = "a Python script: apply_fsdp(model, mesh), make_optimizer, train_step",
          .engine = fsdp2::engine,
          .rules = fsdp2::kRules,
          .write = fsdp2::write};
}

}  // namespace fsdpbench::dialects
