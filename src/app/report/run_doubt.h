#pragma once

#include "app/report/finished_run.h"

namespace fsdpbench::app {

/// [Note: how far an answer from a finished run can be trusted]
/// What a changed run will measure, over what this one did, differs from what replays of this run's op times say for
/// three reasons, which are independent of each other:
/// - the replay does not even hit the run itself. What it misses is in no op's time, and the changed run may have more
///   of it or nothing;
/// - runs differ. One run shows that only by its steps: halves of them differ by its A/A noise (metrics/compare.h), and
///   two runs by both their noises, but never by less than kLeastBetweenRuns, because halves of one run have the same
///   threads on the same cores;
/// - ops that were never measured (replay::WhatIfTimes::doubt_ns).
/// All are half widths of 95 % intervals, as shares of a step.
struct RunDoubt {
  double replay = 0;        ///< how far the replay is from the run
  double between_runs = 0;  ///< by how much two runs of one configuration differ
  double reach = 0;         ///< by how much ops that were never measured may lengthen or shorten a step
  double whole() const;
};
inline constexpr double kLeastBetweenRuns = 0.005;

/// Without the reach, which is the question's. `replayed_ms`: the step that a replay of the unchanged `run` says.
/// Simulated steps that are all alike differ from no other run of theirs.
RunDoubt doubt_of(const FinishedRun& run, double replayed_ms);

}  // namespace fsdpbench::app
