#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace fsdpbench::account {

/// For each op of the schedule that is a collective, the op that it was issued for: the first one in issue order,
/// a computation, an update on the host or another collective, that reads what it gave, be it through copies and casts.
/// -1 of all other ops, and where no op of the same step reads it.
std::vector<int> needed_by(const schedule::Schedule& schedule);

}  // namespace fsdpbench::account
