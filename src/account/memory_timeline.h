#pragma once

#include <vector>

#include "account/run_view.h"
#include "base/memory_category.h"

namespace fsdpbench::account {

/// Live bytes from `time_ns` (since the step's begin) on.
struct MemoryLevel {
  std::int64_t time_ns = 0;
  CategoryBytes live{};
};

/// Live bytes of one rank over one step, at every change: an op's buffers live from its begin on the lane, or until its
/// end, not from when the host, far ahead, issued it. The first level is that of the step's begin.
std::vector<MemoryLevel> memory_timeline(const StepRecords& step, int rank);

}  // namespace fsdpbench::account
