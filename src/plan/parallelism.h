#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/plan.h"

namespace fsdpbench::plan {

/// One way to spread a training over all ranks, in closed form: bytes a device, bytes that it sends in a step.
struct Parallelism {
  std::string name;
  std::string source;     ///< of the formulas
  std::string needs;      ///< why the model does not go with so many ranks; empty: it does
  double parameters = 0;  ///< in the compute dtype, what the device keeps
  double gradients = 0;   ///< in the compute dtype
  double optimizer = 0;   ///< moments, and fp32 masters where the parameters are not
  double in_flight = 0;   ///< gathered parameters and unreduced gradients of one unit
  double activations = 0;
  double wire = 0;
  double bubble = 0;  ///< part of the step in which a device has nothing to do, by the order of the pipeline alone

  double memory() const { return parameters + gradients + optimizer + in_flight + activations; }
};

/// Data parallel, ZeRO-1 to 3, hybrid, tensor (without and with sequence parallelism) and pipeline over
/// plan.mesh.ranks() ranks, all with the global batch of `config`. `activations`: bytes that one device keeps from
/// forward to backward for one of its microbatches. Padding, and bytes beside the largest of their kind (norms, losses,
/// workspaces), are not in it. Hybrid: mesh.shard, or the largest divisor of the ranks up to 8 where that is all ranks.
std::vector<Parallelism> compare_parallelism(const Plan& plan, const config::RunConfig& config, double activations);

}  // namespace fsdpbench::plan
