#pragma once

#include <cstdint>
#include <set>

#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

struct RecognisedRank;

/// The reductions of a rank, rows of its device, that computation waited for without need, where it is the rule: in
/// nine of ten cases that tell, and at least six; else none. Hardware queues do that (CUDA_DEVICE_MAX_CONNECTIONS=1),
/// one stream for both, or a program that waits for each reduction. Reductions of few bytes take no longer than a
/// launch and tell nothing.
std::set<std::int32_t> find_serialised(const RankRows& rank, const RecognisedRank& found);

}  // namespace fsdpbench::foreign
