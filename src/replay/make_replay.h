#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/groups.h"
#include "replay/op_times.h"
#include "replay/replay.h"
#include "schedule/schedule.h"

namespace fsdpbench::replay {

/// The arguments must outlive the replay. Chooses the walk: op by op where no two transfers can meet on a link (or
/// times are given), else in the order of time, in fair shares (base/fluid_link.h). Both give the same where both
/// apply.
std::unique_ptr<Replay> make_replay(const schedule::Schedules& schedules, const plan::Groups& groups,
                                    const OpTimes& times);

/// Whether two communicators of a rank may use one of its links at once.
bool links_are_shared(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times);

/// How long each op of a schedule takes on one rank, in nanoseconds, by op index. A collective's duration counts from
/// the moment its last peer has arrived.
using OpDurations = std::vector<std::int64_t>;

/// The least time in which the schedule can run with these durations: every op starts as soon as its lane, its waits,
/// the host's waits and, for a collective, its communicator and its peers allow; issuing costs nothing. A longest
/// path, computed op by op in (max, +). `by_rank`: one entry a rank of `groups`.
std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            std::vector<OpDurations> by_rank);

}  // namespace fsdpbench::replay
