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
  e.gathered_units = low * std::max(staying, largest);
  e.gradient_units = static_cast<double>(size_of(plan.gradient_dtype)) * largest_trained;
  const bool keeps_low = config.fsdp.cast_in_optimizer && plan.param_dtype != plan.state_dtype;
  if (keeps_low) e.parameters += low * shards;
  offload(plan, config, e);
  return e;
}
double data_parallel_volume(const Plan& plan, const config::RunConfig& config) {
  const double reductions = config.train.accumulate_mode == config::AccumulateMode::no_sync
                                ? 1
                                : static_cast<double>(config.train.accumulate);
  return reductions * 2 * static_cast<double>(plan.shapes.parameter_count() * size_of(plan.reduce_dtype)) *
         ring_share(plan.mesh.ranks());
}

}  // namespace fsdpbench::plan
