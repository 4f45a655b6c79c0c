#include "dialects/key_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace fsdpbench::dialects {
namespace {

/// NCCL reads its environment in whatever program it runs.
Said nccl_variable(std::string_view name, int value) {
  return value == 0 ? same() : yours(fmt::format("{}={} in the environment", name, value));
}
Said cta_policy(const ExportSource& s) {
  return nccl_variable("NCCL_CTA_POLICY", static_cast<int>(s.config.nccl.cta_policy));
}
Said min_ctas(const ExportSource& s) { return nccl_variable("NCCL_MIN_CTAS", s.config.nccl.min_ctas); }
Said max_ctas(const ExportSource& s) { return nccl_variable("NCCL_MAX_CTAS", s.config.nccl.max_ctas); }

Said your_loader(const ExportSource&) { return yours("in your data loader"); }
/// The batch of a rank and the microbatches say it for the ranks there are.
Said when_ranks_change(const ExportSource& s) {
  return s.config.train.batch_global == 0 ? same() : yours("once the number of ranks is another");
}
Said your_loop(const ExportSource&) { return yours("in your training loop"); }
Said your_optimizer(const ExportSource&) { return yours("in your optimizer"); }
Said your_launcher(const ExportSource&) { return yours("for your launcher"); }

constexpr std::array kCommon = std::to_array<KeyRule>({
    {"mesh.ranks", your_launcher},
    {"mesh.shard"},
    {"mesh.replicate"},
    {"mesh.tensor", nullptr, "each layer is whole on every rank"},
    {"mesh.sequence_parallel", nullptr, "each layer is whole on every rank, for all tokens"},
    {"mesh.context", nullptr, "each rank has whole sequences"},
    {"mesh.context_method", nullptr, "each rank has whole sequences"},
    {"mesh.expert", nullptr, "each rank has all experts"},
    {"mesh.expert_imbalance", nullptr, "each rank has all experts"},
    {"mesh.expert_sync", nullptr, "each rank has all experts"},
    {"mesh.expert_separate_comm", nullptr, "each rank has all experts"},
    {"mesh.expert_overlap", nullptr, "each rank has all experts"},
    {"mesh.expert_rows", nullptr, "each rank has all experts"},
    {"train.seq_len", your_loader},
    {"train.batch_per_rank", your_loader},
    {"train.batch_global", when_ranks_change},
    {"train.accumulate", your_loop},
    {"train.accumulate_mode", your_loop},
    {"train.optimizer", your_optimizer},
    {"train.learning_rate", your_optimizer},
    {"train.beta1", your_optimizer},
    {"train.beta2", your_optimizer},
    {"train.epsilon", your_optimizer},
    {"train.weight_decay", your_optimizer},
    {"train.clip_norm", your_loop},
    {"fsdp.strategy"},
    {"fsdp.layout"},
    {"fsdp.reshard_after_forward"},
    {"fsdp.reshard_after_backward"},
    {"fsdp.keep_unreduced"},
    {"fsdp.wait_each_backward"},
    {"fsdp.gradients_after_views"},
    {"fsdp.forward_prefetch"},
    {"fsdp.learn_execution_order"},
    {"fsdp.backward_prefetch"},
    {"fsdp.all_gather_limit"},
    {"fsdp.reduce_scatter_buffers"},
    {"fsdp.separate_reduce_scatter_comm"},
    {"fsdp.wrap"},
    {"fsdp.param_dtype"},
    {"fsdp.reduce_dtype"},
    {"fsdp.gradient_scaling"},
    {"fsdp.activation_checkpointing"},
    {"fsdp.checkpoint_every"},
    {"fsdp.recompute_share", nullptr, "a checkpointed block is recomputed whole"},
    {"fsdp.checkpoint_keeps", nullptr, "a checkpointed block is recomputed whole"},
    {"fsdp.checkpoint_reentrant", nullptr, "checkpointing is not reentrant"},
    {"fsdp.expert_unit", nullptr, "each rank has all experts"},
    {"fsdp.recompute_frees", nullptr, "a recomputation frees nothing"},
    {"fsdp.fp8_products", nullptr, "products are in param_dtype; fp8 is a conversion of the model of its own"},
    {"fsdp.fp8_recipe", nullptr, "products are in param_dtype; fp8 is a conversion of the model of its own"},
    {"fsdp.shard_threshold"},
    {"fsdp.max_live_parameters"},
    {"fsdp.max_reuse_distance"},
    {"fsdp.persistence_threshold"},
    {"fsdp.gathers_ascend"},
    {"fsdp.gathers_follow_compute"},
    {"fsdp.root_prefetches_forward"},
    {"fsdp.root_prefetches_backward"},
    {"fsdp.free_lane"},
    {"fsdp.reduce_bucket"},
    {"fsdp.reduce_by"},
    {"fsdp.reduce_lane"},
    {"fsdp.reduce_lag"},
    {"fsdp.reductions_in_flight"},
    {"fsdp.reduce_scatter_elements"},
    {"fsdp.gradient_copy_in"},
    {"fsdp.head_unit"},
    {"fsdp.gradient_divide_factor"},
    {"fsdp.host_sync_at_group_shard"},
    {"fsdp.keep_group_shard", nullptr, "what is kept of a unit for backward is freed with it"},
    {"fsdp.gather_quantization", nullptr, "parameters are gathered in param_dtype"},
    {"fsdp.reduce_quantization", nullptr, "gradients are reduced in reduce_dtype"},
    {"fsdp.reduce_within"},
    {"fsdp.cpu_offload", nullptr, "all state is in the device's memory"},
    {"fsdp.cast_in_optimizer", nullptr, "shards are cast to param_dtype before each gather"},
    {"fsdp.fp32_gradients", nullptr, "gradients come in param_dtype and are rounded before they are reduced"},
    {"nccl.register_buffers"},
    {"nccl.cta_policy", cta_policy},
    {"nccl.min_ctas", min_ctas},
    {"nccl.max_ctas", max_ctas},
    {"nccl.blocking", nullptr, "PyTorch's communicators are blocking"},
});

}  // namespace

std::span<const KeyRule> common_rules() { return kCommon; }

std::vector<KeyRule> joined_rules(std::span<const KeyRule> own, std::span<const KeyRule> others) {
  std::vector<KeyRule> all(own.begin(), own.end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

bool frees_after_forward(const ExportSource& s) {
  using Mode = config::ReshardAfterForward::Mode;
  if (s.fsdp().strategy == config::Strategy::no_shard) return false;
  switch (s.fsdp().reshard_after_forward.mode) {
    case Mode::never: return false;
    case Mode::always:
    case Mode::group: return true;
    case Mode::automatic: break;
  }
  return s.fsdp().strategy == config::Strategy::full_shard || s.fsdp().strategy == config::Strategy::hybrid_shard;
}

bool prefetches_forward(const ExportSource& s) {
  const config::Prefetch::Mode mode = s.fsdp().forward_prefetch.mode;
  return mode != config::Prefetch::Mode::implicit && mode != config::Prefetch::Mode::none;
}

int units_ahead(const ExportSource& s, const config::Prefetch& prefetch) {
  using Mode = config::Prefetch::Mode;
  switch (prefetch.mode) {
    case Mode::explicit_:
    case Mode::ahead: return prefetch.depth;
    case Mode::window:
    case Mode::rate: {
      const std::int64_t unit = std::max<std::int64_t>(1, s.largest_unit());
      const std::int64_t units = (prefetch.elements + unit - 1) / unit;
      return static_cast<int>(std::min<std::int64_t>(units, static_cast<std::int64_t>(s.plan.units.size())));
    }
    case Mode::none:
    case Mode::implicit:
    case Mode::post:
    case Mode::pre: break;
  }
  return 0;
}

bool is_one_unit_ahead(const config::Prefetch& prefetch) {
  return prefetch.mode == config::Prefetch::Mode::explicit_ && prefetch.depth == 1;
}

Said expert_imbalance(const ExportSource& s) {
  return s.config.mesh.expert_imbalance.even() ? same() : lost("what the router and the data make of it");
}

Said offloads_all(const ExportSource& s, std::string word) {
  switch (s.fsdp().cpu_offload) {
    case config::CpuOffload::none: return same();
    case config::CpuOffload::optimizer: return roughly(word + ", which offloads shards, too");
    case config::CpuOffload::all: break;
  }
  return written(std::move(word));
}

std::string commented(std::string_view mark, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += line.empty() ? fmt::format("{}\n", mark) : fmt::format("{} {}\n", mark, line);
  return text;
}

std::string_view python(bool value) { return value ? "True" : "False"; }

std::string_view torch_dtype(DType type) { return type == DType::bf16 ? "torch.bfloat16" : "torch.float32"; }

std::string python_runs(const std::vector<int>& counts) {
  std::vector<std::string> terms;
  std::vector<int> singles;  // those since the last run of equal ones
  const auto close = [&] {
    if (!singles.empty()) terms.push_back(fmt::format("[{}]", fmt::join(singles, ", ")));
    singles.clear();
  };
  for (auto begin = counts.begin(); begin != counts.end();) {
    const auto end = std::find_if(begin, counts.end(), [&](int count) { return count != *begin; });
    if (end - begin == 1) {
      singles.push_back(*begin);
    } else {
      close();
      terms.push_back(fmt::format("[{}] * {}", *begin, end - begin));
    }
    begin = end;
  }
  close();
  return terms.empty() ? "[]" : fmt::format("{}", fmt::join(terms, " + "));
}

}  // namespace fsdpbench::dialects
