#pragma once

#include "launch/clock_offset.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// Moves all times of a rank's trace onto rank 0's clock. Times that are 0 mean "not known" and stay.
void move_to_root_clock(trace::RankTrace& trace, const launch::ClockCorrection& clock);

}  // namespace fsdpbench::engine
