#pragma once

#include <cstdint>
#include <vector>

#include "plan/groups.h"
#include "schedule/schedule.h"

namespace fsdpbench::replay {

/// How long each op of a schedule takes on one rank, in nanoseconds, by op index. A collective's duration counts from
/// the moment its last peer has arrived.
using OpDurations = std::vector<std::int64_t>;

/// The least time in which the schedule can run with these durations: every op starts as soon as its lane, its waits,
/// the host's waits and, for a collective, its communicator and its peers allow; issuing costs nothing. A longest
/// path, computed op by op in (max, +). `by_rank`: one entry a rank of `groups`.
std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            const std::vector<OpDurations>& by_rank);

}  // namespace fsdpbench::replay
