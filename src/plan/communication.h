#pragma once

#include "base/bytes.h"
#include "base/dtype.h"
#include "config/run_config.h"
#include "plan/plan.h"

namespace fsdpbench::plan {

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
inline double data_parallel_volume(const Plan& plan, const config::RunConfig& config) {
  const bool once = config.train.accumulate_mode == config::AccumulateMode::no_sync;
  return static_cast<double>(once ? 1 : config.train.accumulate) * 2 *
         static_cast<double>(plan.shapes.parameter_count() * size_of(plan.reduce_dtype)) *
         ring_share(plan.mesh.ranks());
}

}  // namespace fsdpbench::plan
