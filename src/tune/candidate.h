#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "plan/plan.h"
#include "replay/measured_times.h"
#include "schedule/schedule.h"

namespace fsdpbench::tune {

/// By module; shared by all candidates that compute the same.
using Sizes = std::shared_ptr<const std::vector<plan::ModuleSizes>>;

/// A configuration made ready to be walked: nothing of it is a machine's.
struct Candidate {
  config::RunConfig config;  ///< valid
  plan::Plan plan;
  Sizes sizes;
  schedule::Schedules schedules;

  replay::Training training() const { return {schedules, plan.groups, *sizes}; }
};

/// `config`: valid; `sizes`: of its modules. Throws what plan and schedules throw.
Candidate make_candidate(const config::RunConfig& config, Sizes sizes);

/// Equal for candidates whose schedules do the same to the same bytes in the same order, so that no machine tells them
/// apart: a knob that has no effect does not change it.
std::uint64_t fingerprint(const Candidate& candidate);

}  // namespace fsdpbench::tune
