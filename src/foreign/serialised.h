#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "foreign/collective_use.h"
#include "foreign/job_steps.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

/// The reductions of a rank (`uses`: its collectives, by step), rows of its device, that computation waited for without
/// need, where it is the rule: in nine of ten cases that tell, and at least six; else none. Hardware queues do that
/// (CUDA_DEVICE_MAX_CONNECTIONS=1), one stream for both, or a program that waits for each reduction. Reductions of few
/// bytes take no longer than a launch and tell nothing.
std::set<std::int32_t> find_serialised(const RankRows& rank, const JobSteps& cut,
                                       const std::vector<std::vector<CollectiveUse>>& uses, int compute_stream);

}  // namespace fsdpbench::foreign
