#include "plan/communication.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::plan {
namespace {

double master(const config::RunConfig& config) { return static_cast<double>(size_of(config.fsdp.state_dtype)); }

double moments(const config::RunConfig& config) {
  return config.train.optimizer == config::Optimizer::adamw ? 2 * master(config) : 0;
}

/// Takes what the host has of the shards from the device. Of gradients one unit's is on its way.
void offload(const Plan& plan, const config::RunConfig& config, MemoryEstimate& e) {
  if (config.fsdp.cpu_offload == config::CpuOffload::none) return;
  double shards = 0, largest = 0, trained = 0, largest_trained = 0;
  for (const Unit& unit : plan.units) {
    const double shard = static_cast<double>(unit.layout.parameter_numel()) / unit.layout.shards;
    const double gradients = static_cast<double>(unit.gradient_layout.parameter_numel()) / unit.layout.shards;
    shards += shard;
    largest = std::max(largest, shard);
    trained += gradients;
    largest_trained = std::max(largest_trained, gradients);
  }
  const bool keeps = config.fsdp.cpu_offload == config::CpuOffload::optimizer;
  const double masters = master(config) * shards;
  e.host = masters + moments(config) * trained + master(config) * trained;
  e.parameters -=
      masters - (keeps ? static_cast<double>(size_of(plan.param_dtype)) * shards : master(config) * largest);
  e.optimizer -= moments(config) * trained;
  e.gradients = std::max(0.0, e.gradients - master(config) * (trained - largest_trained));
}

}  // namespace

MemoryEstimate memory_without_fsdp(const Plan& plan, const config::RunConfig& config) {
  MemoryEstimate e;
  const auto parameters = static_cast<double>(plan.shapes.part_count());
  e.parameters = master(config) * parameters;
  const auto trained = static_cast<double>(plan.shapes.trained_count());
  e.optimizer = moments(config) * trained;
  // fp32 masters, and weights and gradients in lower dtypes beside them: 16 bytes a parameter with AdamW and bf16
  if (plan.param_dtype != plan.state_dtype)
    e.gathered_units = static_cast<double>(size_of(plan.param_dtype)) * parameters;
  (plan.gradient_dtype == plan.state_dtype ? e.gradients : e.gradient_units) =
      static_cast<double>(size_of(plan.gradient_dtype)) * trained;
  return e;
}

MemoryEstimate memory_with_fsdp(const Plan& plan, const config::RunConfig& config) {
  MemoryEstimate e;
  if (!plan.shares_units()) {
    e = memory_without_fsdp(plan, config);
    offload(plan, config, e);
    return e;
  }
  double shards = 0, owned = 0, largest = 0, staying = 0, trained = 0, largest_trained = 0;
  for (const Unit& unit : plan.units) {
    const auto sharded = static_cast<double>(unit.layout.parameter_numel());
    shards += sharded / unit.layout.shards;
    owned += sharded / unit.layout.shards;
    for (const ParameterPlacement& p : unit.layout.replicated) owned += static_cast<double>(p.numel);
    const auto gradients = static_cast<double>(unit.gradient_layout.parameter_numel());
    trained += gradients / unit.layout.shards;
    for (const ParameterPlacement& p : unit.gradient_layout.replicated) trained += static_cast<double>(p.numel);
    if (unit.stays_gathered) staying += sharded;
    // The root's embedding and head are not the unit that the rule of thumb means, unless there is no other.
    if (&unit == &plan.units.front() && plan.units.size() > 1) continue;
    largest = std::max(largest, sharded);
    largest_trained = std::max(largest_trained, gradients);
  }
  const auto low = static_cast<double>(size_of(plan.param_dtype));
  e.parameters = master(config) * owned;
  e.optimizer = moments(config) * trained;
  e.gradients = master(config) * trained;
  e.gathered_units = low * (staying > 0 ? std::max(staying, largest) : largest);
  e.gradient_units = static_cast<double>(size_of(plan.gradient_dtype)) * largest_trained;
  const bool keeps_low = config.fsdp.cast_in_optimizer && plan.param_dtype != plan.state_dtype;
  if (keeps_low) e.parameters += low * shards;
  offload(plan, config, e);
  return e;
}
namespace {

double ring(std::int64_t numel, DType dtype, int ranks) {
  return static_cast<double>(numel * size_of(dtype)) * ring_share(ranks);
}

/// Bytes of a gather over the ranks that share `layout`.
double sharded_bytes(const ShardLayout& layout, DType dtype) {
  return layout.sharded.empty() ? 0 : ring(layout.gathered_numel(), dtype, layout.shards);
}

/// Exchanges of ranks that split each layer: the residual stream is summed after the embedding, twice in each
/// block's forward and twice in its backward, once where a block is recomputed, and before the head's norm in backward.
/// The head gathers three floats a token. With mesh.sequence_parallel each of these sums leaves a rank its tokens, and
/// the stream is gathered before each layer: twice in a block's forward and recomputation, four times in its backward,
/// for the head twice and for the embedding's gradient once; gradients of norms, and of biases after a sum, are summed.
void add_tensor_volume(const Plan& plan, const config::RunConfig& config, CommunicationVolume& volume) {
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
void add_context_volume(const config::RunConfig& config, CommunicationVolume& volume) {
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
void add_expert_volume(const config::RunConfig& config, CommunicationVolume& volume) {
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

}  // namespace

CommunicationVolume communication_volume(const Plan& plan, const config::RunConfig& config, const Regathers& again) {
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
  if (tensor > 1) add_tensor_volume(plan, config, volume);
  if (plan.mesh.context > 1) add_context_volume(config, volume);
  if (plan.mesh.expert > 1) add_expert_volume(config, volume);
  return volume;
}

double data_parallel_volume(const Plan& plan, const config::RunConfig& config) {
  const double reductions = config.train.accumulate_mode == config::AccumulateMode::no_sync
                                ? 1
                                : static_cast<double>(config.train.accumulate);
  return reductions * 2 * ring(plan.shapes.parameter_count(), plan.reduce_dtype, plan.mesh.ranks());
}

}  // namespace fsdpbench::plan
