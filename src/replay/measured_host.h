#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/lane.h"
#include "replay/delays.h"
#include "replay/op_times.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::replay {

/// What the host and the start of ops took in a finished run: the medians of all issues, of all starts on a lane that
/// had been idle, of all starts on one that had been busy, and of all ops that began because another lane's op had
/// ended. `delays` were injected and are taken out. `traces`: as recorded, the same steps on all.
HostCosts measured_host(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                        const Delays& delays);

/// How much later than that ops began, by lane: of each that began neither for its communicator nor behind an op
/// without work, in no order that means anything. What is in all of a lane's ops holds that lane up.
using LaneLags = std::array<std::vector<double>, kLaneCount>;
/// By place in `traces`. `costs`: as measured_host() found them.
std::vector<LaneLags> measured_lags(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                                    const HostCosts& costs);

}  // namespace fsdpbench::replay
