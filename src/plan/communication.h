#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/plan.h"

namespace fsdpbench::plan {

/// Closed-form bytes a device, without looking at a schedule: what a paper or a napkin says. Decimal arithmetic on
/// parameter counts; padding is not in it. The schedule's own walk (schedule/memory_walk.h) is exact.
struct MemoryEstimate {
  double parameters = 0;      ///< fp32 masters
  double optimizer = 0;       ///< two fp32 moments for AdamW, none for SGD
  double gradients = 0;       ///< fp32 gradients of what the device owns
  double gathered_units = 0;  ///< unsharded parameters in flight, compute dtype
  double gradient_units = 0;  ///< unsharded gradients in flight, compute dtype
  double host = 0;            ///< fsdp.cpu_offload: masters, moments and gradients that are in host memory instead
  double total() const { return parameters + optimizer + gradients + gathered_units + gradient_units; }
};

/// With FSDP as planned, fsdp.cpu_offload included: masters, moments and gradients split over the shard group
/// (parameters below the threshold are not), one unit gathered (the largest, or those that stay gathered) and one
/// unit's gradient on top. No shard: everything whole; the compute dtype's copy and gradients are whole too if they are
/// not the masters themselves.
MemoryEstimate memory_with_fsdp(const Plan& plan, const config::RunConfig& config);

/// Memory of the same model on one device without sharding.
MemoryEstimate memory_without_fsdp(const Plan& plan, const config::RunConfig& config);

/// Bytes a rank sends in one step with ring algorithms, by collective.
struct CommunicationVolume {
  double all_gather = 0;
  double reduce_scatter = 0;
  double all_reduce = 0;
  double all_to_all = 0;
  double total() const { return all_gather + reduce_scatter + all_reduce + all_to_all; }
};

/// Which units a step gathers more than once.
struct Regathers {
  std::vector<bool> for_backward;  ///< by unit: gathered again for backward, in each microbatch
  std::vector<int> unused{};       ///< by unit: how many more times a step it is gathered, and not used; empty: never
};

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
CommunicationVolume communication_volume(const Plan& plan, const config::RunConfig& config, const Regathers& again);

/// What plain data parallelism sends for the same parameters and reduce dtype: one all-reduce over all ranks, each
/// microbatch or once, as train.accumulate_mode says.
double data_parallel_volume(const Plan& plan, const config::RunConfig& config);

}  // namespace fsdpbench::plan
