#pragma once

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
double data_parallel_volume(const Plan& plan, const config::RunConfig& config);

}  // namespace fsdpbench::plan
