#pragma once

#include "config/cluster.h"
#include "engine/run.h"
#include "engine/setup.h"
#include "replay/calibration.h"
#include "replay/op_times.h"

namespace fsdpbench::engine {

/// Whose records a simulation keeps: all of so many ranks; of more, trace.ranks of them (at least two): the first, the
/// slowest of the whole run, and others in order.
inline constexpr int kMostRecordedRanks = 64;

/// The run of `setup` on a computed clock: what a backend would have measured if its ops took `times`. No thread, no
/// sleeping; the same arguments give the same measurement. Warm-up steps are walked and not recorded. `hooks.stop` is
/// asked before each step; `hooks.progress` is told after it.
Measurement simulate(const Setup& setup, const replay::OpTimes& times, const RunHooks& hooks = {});

/// What the ops of `setup` take, as its configuration says: on `cluster`, or, if that is null, at the rates of
/// [emulate]; with [simulate]'s host and jitter, and with injected trouble. The ranks must fit the cluster
/// (config::check_fits).
replay::OpTimes simulated_times(const Setup& setup, const config::Cluster* cluster);

/// The same by a calibration of a machine.
replay::CalibratedTimes calibrated_times(const Setup& setup, const config::Calibration& calibration);

}  // namespace fsdpbench::engine
