#pragma once

#include <string>

#include "metrics/cause_report.h"
#include "schedule/policy.h"

namespace fsdpbench::metrics {

/// One sentence on what to do about a cause: the knob by its key, what it is now, and what it would win.
/// `stalled_ms`: all time without computation.
std::string advice(const CauseShare& share, const schedule::Policy& policy, double stalled_ms);

}  // namespace fsdpbench::metrics
