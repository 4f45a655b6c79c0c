#pragma once

#include "base/intervals.h"
#include "clock/op_times.h"
#include "engine/setup.h"
#include "trace/record.h"

namespace fsdpbench::foreign::corpus {

/// When one rank had a collective on one of its lanes, waiting for peers included.
IntervalSet communicating(const schedule::Schedules& schedules, const trace::RankTrace& trace);

/// `times` of a run in which modules compute `factor` times as slowly while a collective runs, as the run's own first
/// rank has it: walked until the overlap is that of the run.
clock::OpTimes slowed_beside(const engine::Setup& setup, clock::OpTimes times, double factor);

/// The moment at which `share` of what is computed in `time` is done, at 1/`factor` of the speed within `beside`.
std::int64_t when_done(const Interval& time, const IntervalSet& beside, double factor, double share);

}  // namespace fsdpbench::foreign::corpus
