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

/// Bytes of plain data parallelism for the same parameters and reduce dtype: one all-reduce over all ranks, each
/// microbatch or once, as train.accumulate_mode says.
double data_parallel_volume(const Plan& plan, const config::RunConfig& config);

}  // namespace fsdpbench::plan
