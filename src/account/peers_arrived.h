#pragma once

#include <vector>

#include "plan/groups.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::account {

/// Where a device could not know when the last rank of a collective had arrived (Record::peers_arrived_ns is 0), it is
/// the latest begin of the same op among the ranks of its group, but never outside the record itself. Times of all
/// ranks must be on one line. Throws as RunView does if the ranks have not the same steps.
void fill_peers_arrived(const schedule::Schedules& schedules, const plan::Groups& groups,
                        std::vector<trace::RankTrace>& traces);

}  // namespace fsdpbench::account
