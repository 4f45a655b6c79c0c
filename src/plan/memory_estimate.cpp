#include "plan/memory_estimate.h"

#include <algorithm>

namespace fsdpbench::plan {
namespace {

constexpr double kMaster = 4;  // fp32 bytes

double moments(const config::RunConfig& config) {
  return config.train.optimizer == config::Optimizer::adamw ? 2 * kMaster : 0;
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
  const double masters = kMaster * shards;
  e.host = masters + moments(config) * trained + kMaster * trained;
  e.parameters -= masters - (keeps ? static_cast<double>(size_of(plan.param_dtype)) * shards : kMaster * largest);
  e.optimizer -= moments(config) * trained;
  e.gradients = std::max(0.0, e.gradients - kMaster * (trained - largest_trained));
}

}  // namespace

MemoryEstimate memory_without_fsdp(const Plan& plan, const config::RunConfig& config) {
  MemoryEstimate e;
  const auto parameters = static_cast<double>(plan.shapes.part_count());
  e.parameters = kMaster * parameters;
  const auto trained = static_cast<double>(plan.shapes.trained_count());
  e.optimizer = moments(config) * trained;
  // fp32 masters, and weights and gradients in lower dtypes beside them: 16 bytes a parameter with AdamW and bf16
  if (plan.param_dtype != DType::f32) e.gathered_units = static_cast<double>(size_of(plan.param_dtype)) * parameters;
  (plan.gradient_dtype == DType::f32 ? e.gradients : e.gradient_units) =
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
  e.parameters = kMaster * owned;
  e.optimizer = moments(config) * trained;
  e.gradients = kMaster * trained;
  e.gathered_units = low * (staying > 0 ? std::max(staying, largest) : largest);
  e.gradient_units = static_cast<double>(size_of(plan.gradient_dtype)) * largest_trained;
  const bool keeps_low = config.fsdp.cast_in_optimizer && plan.param_dtype != DType::f32;
  if (keeps_low && !config.fsdp.gather_quantization.on()) e.parameters += low * shards;
  offload(plan, config, e);
  return e;
}

}  // namespace fsdpbench::plan
