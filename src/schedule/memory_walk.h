#pragma once

#include "base/lane_pool.h"
#include "schedule/schedule.h"

namespace fsdpbench::schedule {

/// What a device's pool will show, to the byte, after `steps` steps: the schedule's own allocations, frees, waits
/// and the host's wait after each step, walked over base/lane_pool.h. `peak_occupied` covers the steps, persistent
/// buffers included.
PoolStatistics memory_walk(const Schedules& schedules, int steps);

}  // namespace fsdpbench::schedule
