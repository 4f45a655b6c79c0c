// Bytes on the wire in closed form, from plan and policy alone: what is counted in schedules and by communicators must
// be that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "config/run_config.h"
#include "plan/communication.h"
#include "plan/module_sizes.h"
#include "plan/plan.h"
#include "plan/shard_layout.h"
#include "schedule/policy.h"
#include "schedule/prefetcher.h"

namespace fsdpbench::plan {

/// Which units a step gathers more than once.
struct Regathers {
  std::vector<bool> for_backward;  ///< by unit: gathered again for backward, in each microbatch
  std::vector<int> unused{};       ///< by unit: how many more times a step it is gathered, and not used; empty: never
};

namespace closed_form {

inline double ring(std::int64_t numel, DType dtype, int ranks) {
  return static_cast<double>(numel * size_of(dtype)) * ring_share(ranks);
}

/// Bytes of a gather over the ranks that share `layout`.
inline double sharded_bytes(const ShardLayout& layout, DType dtype) {
  return layout.sharded.empty() ? 0 : ring(layout.gathered_numel(), dtype, layout.shards);
}

/// Exchanges of ranks that split each layer: the residual stream is summed after the embedding, twice in each
/// block's forward and twice in its backward, once where a block is recomputed, and before the head's norm in backward.
/// The head gathers three floats a token. With mesh.sequence_parallel each of these sums leaves a rank its tokens, and
/// the stream is gathered before each layer: twice in a block's forward and recomputation, four times in its backward,
/// for the head twice and for the embedding's gradient once; gradients of norms, and of biases after a sum, are summed.
inline void add_tensor_volume(const Plan& plan, const config::RunConfig& config, CommunicationVolume& volume) {
  const config::Fsdp& fsdp = config.fsdp;
  const std::int64_t layers = config.model.layers, tokens = config.train.batch_per_rank * config.train.seq_len;
  const std::int64_t recomputed = fsdp.activation_checkpointing ? ceil_div(layers, fsdp.checkpoint_every) : 0;
  const auto micros = static_cast<double>(config.train.accumulate);
  const auto sums = static_cast<double>(2 + 4 * layers + recomputed);
  const int ranks = plan.mesh.tensor;
  const double stream = ring(tokens * config.model.width, plan.param_dtype, ranks);
  if (config.mesh.sequence_parallel) {
    const config::Model& model = config.model;
    const std::int64_t of_norm = model.norm == config::Norm::layer ? 2 : 1;
    const std::int64_t whole = (2 * layers + 1) * of_norm + (model.bias ? 2 * layers : 0);
    volume.reduce_scatter += micros * sums * stream;
    volume.all_gather += micros * static_cast<double>(3 + 6 * layers + 2 * recomputed) * stream;
    volume.all_reduce += micros * 2 * ring(whole * model.width, plan.param_dtype, ranks);
  } else {
    volume.all_reduce += micros * sums * 2 * stream;
  }
  volume.all_gather += micros * ring(3 * tokens * ranks, DType::f32, ranks);
}

/// Ranks that split sequences gather keys and values in each block's forward, again where it is recomputed and in its
/// backward, which leaves each rank the sum of its tokens' gradients of them.
inline void add_context_volume(const config::RunConfig& config, CommunicationVolume& volume) {
  const config::Model& model = config.model;
  const std::int64_t recomputed =
      config.fsdp.activation_checkpointing ? ceil_div(model.layers, config.fsdp.checkpoint_every) : 0;
  const std::int64_t keys_and_values =
      2 * model.kv_heads * model.head_size() * config.train.batch_per_rank * config.train.seq_len;
  const double each = static_cast<double>(config.train.accumulate) *
                      ring(keys_and_values, config.fsdp.param_dtype, static_cast<int>(config.mesh.context));
  volume.all_gather += each * static_cast<double>(2 * model.layers + recomputed);
  volume.reduce_scatter += each * static_cast<double>(model.layers);
}

/// Rows of tokens go to the ranks that have their experts and come back, in each block's forward, backward and, if it
/// is recomputed, once more; of a forward ranks tell each other the numbers of rows, if the host waits for them.
inline void add_expert_volume(const config::RunConfig& config, CommunicationVolume& volume) {
  const config::Model& model = config.model;
  const std::int64_t ranks = config.mesh.expert, layers = model.layers;
  const std::int64_t visits = config.train.batch_per_rank * config.train.seq_len * model.active_experts;
  const ExpertSplit split = expert_split(config);
  const bool repeats = config.fsdp.activation_checkpointing && split.repeats;
  const std::int64_t recomputed = repeats ? ceil_div(layers, config.fsdp.checkpoint_every) : 0;
  const std::int64_t sent = split.sent_rows(model, split.arrived_rows(visits));
  const std::int64_t to_each = ceil_div(sent, ranks) * model.width * size_of(config.fsdp.param_dtype);
  const std::int64_t told = split.told ? (model.experts / ranks) * size_of(DType::i32) : 0;
  const std::int64_t each = (2 * (2 * layers + recomputed)) * to_each + (layers + recomputed) * told;
  volume.all_to_all += static_cast<double>(config.train.accumulate * (ranks - 1) * each);
}

}  // namespace closed_form

/// Closed form, from the plan alone (the schedule is not looked at): an all-gather or reduce-scatter of S bytes over
/// N ranks sends (N-1)/N S a rank, an all-reduce 2 (N-1)/N S. `again`: schedule::regathers().
/// Padding is sent too, so it counts. The gather of gradient norms (8 (N-1) bytes) counts as all-gather.
/// Ranks that split layers sum the residual stream, [tokens, width] in the compute dtype: after the embedding, twice in
/// each block's forward and twice in its backward, once where it is recomputed, and once in the head's backward; of the
/// softmax 12 bytes a token are gathered. With mesh.sequence_parallel each sum is a reduce-scatter, the stream is
/// gathered twice in a block's forward and recomputation and four times in its backward, twice for the head and once
/// for the embedding, and gradients of norms (of biases after a sum, too) are all-reduced. All of it is in all_reduce,
/// reduce_scatter and all_gather.
/// Ranks that split sequences (mesh.context) gather keys and values in each block's forward, in its backward and where
/// it is recomputed, and reduce-scatter their gradients.
/// Ranks that split experts (mesh.expert) send (E-1)/E of k rows a token, [tokens * k, width] in the compute dtype,
/// times mesh.expert_imbalance: twice in each block's forward, twice in its backward, twice where it is recomputed.
/// Before each but those of backward they tell each other how many, in 4 bytes an expert (mesh.expert_sync). That is in
/// all_to_all.
inline CommunicationVolume communication_volume(const Plan& plan, const config::RunConfig& config,
                                                const Regathers& again) {
  using closed_form::ring, closed_form::sharded_bytes;
  using config::AccumulateMode;
  CommunicationVolume volume;
  const int replicate = plan.mesh.replicate;
  const auto micros = static_cast<double>(config.train.accumulate);
  const AccumulateMode mode = config.train.accumulate_mode;
  const double reductions = mode == AccumulateMode::no_sync ? 1 : micros;
  // With no replicas there is no all-reduce to save, and reduce_scatter_only is reduce_each.
  const double across = mode == AccumulateMode::reduce_each ? micros : 1;

  const bool reshards_any =
      std::find(again.for_backward.begin(), again.for_backward.end(), true) != again.for_backward.end();
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const ShardLayout& layout = plan.units[u].layout;
    const int shard = layout.shards;
    // Kept after backward, a unit is gathered for the first forward only.
    const bool kept = !config.fsdp.reshard_after_backward || plan.units[u].stays_gathered ||
                      (config.fsdp.keep_unreduced && mode == AccumulateMode::no_sync && !reshards_any);
    const double forwards = (kept ? 1 : micros) + (again.unused.empty() ? 0 : again.unused[u]);
    volume.all_gather += forwards * sharded_bytes(layout, plan.param_dtype);
    if (again.for_backward[u]) {
      // Between forward and backward a unit may lie in a smaller group (reshard_after_forward = n).
      const ShardLayout& kept_in = plan.units[u].group_layout.empty() ? layout : plan.units[u].group_layout.front();
      volume.all_gather += micros * sharded_bytes(kept_in, plan.param_dtype);
    }
    const ShardLayout& trained = plan.units[u].gradient_layout;
    const std::int64_t reduced = trained.sharded.empty() ? 0 : trained.gathered_numel();
    if (config.fsdp.reduce_by == config::ReduceBy::all_reduce && shard > 1) {
      volume.all_reduce +=
          reductions * 2 * (ring(reduced, plan.reduce_dtype, shard) + ring(reduced, plan.reduce_dtype, replicate));
    } else {
      volume.reduce_scatter += reductions * ring(reduced, plan.reduce_dtype, shard);
      volume.all_reduce +=
          across * 2 * ring(trained.sharded.empty() ? 0 : trained.shard_numel, plan.reduce_dtype, replicate);
    }
    volume.all_reduce += reductions * 2 *
                         (ring(trained.replicated_numel, plan.reduce_dtype, shard) +
                          ring(trained.replicated_numel, plan.reduce_dtype, replicate));
  }
  const int tensor = plan.mesh.tensor;
  if (config.train.clip_norm > 0) volume.all_gather += 8.0 * ((plan.mesh.shard - 1) + (tensor - 1) * plan.mesh.shard);
  if (tensor > 1) closed_form::add_tensor_volume(plan, config, volume);
  if (plan.mesh.context > 1) closed_form::add_context_volume(config, volume);
  if (plan.mesh.expert > 1) closed_form::add_expert_volume(config, volume);
  return volume;
}

}  // namespace fsdpbench::plan

namespace fsdpbench::schedule {

/// Number of gathers that each unit needs in a microbatch of the steady state: 0 where it is never freed, 1 or 2.
inline std::vector<int> gathers_a_microbatch(const Policy& policy, const plan::Plan& plan) {
  const int units = plan.with_modules;
  std::vector<int> gathers(plan.units.size(), 0);
  std::vector<bool> missing(plan.units.size(), true);
  for (int u = 0; u < units; ++u) {
    const plan::Unit& unit = plan.units[u];
    if (!plan.shares_units() || !unit.has_sharded() || unit.stays_gathered) missing[u] = false;
  }
  const std::vector<bool> never = missing;
  std::int64_t live = 0;
  const auto gather = [&](int u) {
    const std::size_t i = u;
    if (!missing[i]) return;
    missing[i] = false;
    ++gathers[i];
    live += plan.units[u].layout.parameter_numel();
  };
  const auto release = [&](int u) {
    const std::size_t i = u;
    if (missing[i] || !never[i]) return;
    missing[i] = true;
    live -= plan.units[u].layout.parameter_numel();
  };
  FetchTrace trace(policy, plan);
  const auto hook = [&](int u) {
    gather(u);
    for (int wanted : trace.next(u, missing, live)) gather(wanted);
  };
  const auto after_forward = [&](int u) {
    if (reshards_after_forward(policy, plan, u) && !trace.keeps(u)) release(u);
  };
  for (int u = 0; u < units; ++u) {
    hook(u);
    if (u != plan::Plan::kRoot) after_forward(u);
  }
  after_forward(plan::Plan::kRoot);
  hook(plan::Plan::kRoot);
  for (int u = units - 1; u > plan::Plan::kRoot; --u) {
    hook(u);
    release(u);
  }
  return gathers;
}

namespace closed_form {

/// The first unit that a backward gathers again. Below the first unit that trains only prefetches bring any, which go
/// by the order of forward alone (FSDP2).
inline int first_regathered(const Policy& policy, const plan::Plan& plan) {
  using Mode = config::Prefetch::Mode;
  const int first = plan.unit_of_module[plan.shapes.first_trained()];
  const config::Prefetch& prefetch = policy.fsdp.backward_prefetch;
  if (policy.fsdp.gradients_after_views) return first;
  if (prefetch.mode == Mode::pre) return first - 1;
  return prefetch.mode == Mode::explicit_ ? first - prefetch.depth : first;
}

/// Whether a recomputation in backward gathers this unit, whose own backward is over: fsdp.checkpoint_reentrant.
/// Each block is a unit: validate() sees to that.
inline bool comes_again_in_recomputation(const Policy& policy, int unit) {
  const config::Fsdp& fsdp = policy.fsdp;
  if (!fsdp.checkpoint_reentrant || !fsdp.activation_checkpointing) return false;
  if (fsdp.forward_prefetch.mode != config::Prefetch::Mode::explicit_) return false;
  for (int u = unit - 1; u > plan::Plan::kRoot && u >= unit - fsdp.forward_prefetch.depth; --u) {
    if ((u - 1) % fsdp.checkpoint_every == 0) return true;
  }
  return false;
}

/// fsdp.recompute_frees: the backward of a recomputed block gathers its experts once more, and those of the recomputed
/// block behind it, whose recomputation was noted last: nobody waits for these.
inline void add_after_recomputations(const Policy& policy, const plan::Plan& plan, std::vector<int>& unused) {
  const config::Fsdp& fsdp = policy.fsdp;
  if (!plan.nests_experts || !fsdp.activation_checkpointing || !fsdp.recompute_frees) return;
  const bool by_notes = prefetches_backward(fsdp);
  // The next forward uses what a microbatch's backward leaves gathered.
  const int dropped = reshards_after_backward(policy, false) && fsdp.wait_each_backward ? policy.accumulate : 1;
  bool first = true;
  for (int u = plan::Plan::kRoot + 1; u < plan.with_modules; ++u) {
    const int experts = plan.units[u].experts;
    if (experts < 0 || (u - 1) % fsdp.checkpoint_every != 0) continue;
    int& more = unused[experts];
    if (reshards_after_forward(policy, plan, experts)) more += policy.accumulate;
    if (by_notes && !std::exchange(first, false)) more += dropped;
  }
}

}  // namespace closed_form

inline plan::Regathers regathers(const Policy& policy, const plan::Plan& plan) {
  plan::Regathers result;
  const std::vector<int> gathers = gathers_a_microbatch(policy, plan);
  std::ranges::transform(gathers, std::back_inserter(result.for_backward), [](int n) { return n > 1; });
  result.unused.assign(plan.units.size(), 0);
  const int first = closed_form::first_regathered(policy, plan);
  for (int u = plan::Plan::kRoot + 1; u < std::min(first, plan.with_modules); ++u) {
    result.for_backward[u] = false;
  }
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (const int of = plan.units[u].members.experts_of; of >= 0) {
      result.for_backward[u] = result.for_backward[of];
    }
  }
  const int last = plan.with_modules - 1;
  const bool reaches_first_unit = plan.unit_of_module[plan.shapes.first_trained()] <= plan::Plan::kRoot + 1;
  if (policy.accumulate > 1 && last > plan::Plan::kRoot + 1 && reaches_first_unit &&
      prefetches_across_microbatches(policy, plan) && !plan.units[last].stays_gathered) {
    ++result.unused[last];
  }
  for (int u = plan::Plan::kRoot + 2; u < plan.with_modules; ++u) {
    if (closed_form::comes_again_in_recomputation(policy, u)) {
      result.unused[u] += reshards_after_backward(policy, false) ? policy.accumulate : 1;
    }
  }
  closed_form::add_after_recomputations(policy, plan, result.unused);
  return result;
}

}  // namespace fsdpbench::schedule
