#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "plan/plan.h"
#include "schedule/op.h"
#include "schedule/policy.h"

namespace fsdpbench::schedule {

/// A configuration and everything that follows from it, whatever machine it will run on.
struct Training {
  config::RunConfig config;  ///< valid, mesh filled in
  plan::Plan plan;
  Policy policy;
  std::vector<plan::ModuleSizes> sizes;  ///< by module of the model, one microbatch
  Schedules schedules;

  /// This training as if each of its steps were the one that repeats.
  Training steady() const;
};

/// Sizes of the modules of a plan: only the model can say it (model/model.h).
using SizesOf = std::function<std::vector<plan::ModuleSizes>(const plan::Plan&)>;

/// The training of a valid configuration. Throws what plan, sizes and schedules throw: not every configuration is
/// possible for every model, and no plan may need more than 8 EiB.
Training make_training(const config::RunConfig& config, const SizesOf& sizes);
/// Likewise where the sizes are known.
Training make_training(const config::RunConfig& config, const std::vector<plan::ModuleSizes>& sizes);

/// Equal for trainings whose schedules do the same to the same bytes in the same order, so that no machine tells them
/// apart: a key that has no effect does not change it.
std::uint64_t fingerprint(const Training& training);

}  // namespace fsdpbench::schedule
