#pragma once

#include "engine/run.h"
#include "engine/setup.h"
#include "replay/op_times.h"

namespace fsdpbench::engine {

/// Whose records a simulation keeps: all of so many ranks; of more, trace.ranks of them (at least two): the first, the
/// slowest of the whole run, and others in order.
inline constexpr int kMostRecordedRanks = 64;

/// The run of `setup` on a computed clock: what a backend would have measured if its ops took `times`. No thread, no
/// sleeping; the same arguments give the same measurement. Warm-up steps are walked and not recorded. `hooks.stop` is
/// asked before each step; `hooks.progress` is told after it.
Measurement simulate(const Setup& setup, const replay::OpTimes& times, const RunHooks& hooks = {});

/// What the ops of `setup` take, as its configuration says: [emulate], injected trouble and [simulate]'s host and
/// jitter. simulate.cluster must be empty.
replay::OpTimes emulated_times(const Setup& setup);

/// Host, jitter and injected trouble of the configuration, added to `times`.
void add_conditions(const config::RunConfig& config, replay::OpTimes& times);

}  // namespace fsdpbench::engine
