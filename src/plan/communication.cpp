#include "plan/communication.h"

#include "base/bytes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::plan {

double data_parallel_volume(const Plan& plan, const config::RunConfig& config) {
  const double reductions = config.train.accumulate_mode == config::AccumulateMode::no_sync
                                ? 1
                                : static_cast<double>(config.train.accumulate);
  return reductions * 2 * static_cast<double>(plan.shapes.parameter_count() * size_of(plan.reduce_dtype)) *
         ring_share(plan.mesh.ranks());
}

}  // namespace fsdpbench::plan
