#pragma once

#include "clock/calibration.h"
#include "clock/op_times.h"
#include "config/cluster.h"
#include "engine/run.h"
#include "engine/setup.h"

namespace fsdpbench::engine {

/// Whose records a simulation keeps: all of so many ranks; of more, trace.ranks of them (at least two): the first, the
/// slowest of the whole run, and others in order.
inline constexpr int kMostRecordedRanks = 64;
/// Number of ranks that this records, of `ranks`.
int ranks_recorded(const config::Trace& trace, int ranks);

/// Whether [simulate] asks for anything that is drawn: jitter, pauses, ranks that differ.
bool draws(const config::Simulate& simulate);
/// `times` with it.
clock::OpTimes with_draws(const config::Simulate& simulate, int ranks, clock::OpTimes times);

/// The run of `setup` on a computed clock: what a backend would have measured if its ops took `undrawn` and what its
/// configuration draws. No thread, no sleeping; the same arguments give the same measurement. Warm-up steps are walked
/// and not recorded. `hooks.stop` is asked before each step; `hooks.progress` is told after it.
Measurement simulate(const Setup& setup, const clock::OpTimes& undrawn, const RunHooks& hooks = {});

/// Times of the ops of `training` before anything is drawn, as its configuration says: on `cluster`, or, if that is
/// null, at the rates of [emulate]; with [simulate]'s host and with injected trouble. The ranks must fit the cluster
/// (config::check_fits). `contention`: computation is slower beside collectives.
clock::OpTimes simulated_times(const schedule::Training& training, const config::Cluster* cluster,
                               bool contention = true);

/// Op times by a calibration of a machine. Where that has slow-downs, ops beside others take longer (`contention`).
clock::CalibratedTimes calibrated_times(const schedule::Training& training, const config::Calibration& calibration,
                                        bool contention = true);

}  // namespace fsdpbench::engine
