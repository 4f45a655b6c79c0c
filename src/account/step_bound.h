#pragma once

#include <cstdint>

#include "account/step_view.h"
#include "base/lane.h"
#include "clock/op_times.h"
#include "schedule/training.h"
#include "trace/facts.h"

namespace fsdpbench::account {

/// The least time in which one rank's ops of a step can run as they depend on each other, whatever the other ranks do:
/// every op takes as long as it did (a collective from the arrival of its last peer on) and begins as soon as its lane,
/// its communicator, its events and the host's waits allow; issuing costs nothing. clock::max_plus_bound() of a run of
/// this rank alone, with the chain of ops that takes so long.
trace::StepBound step_bound(const StepView& step);

/// A step without a machine, in nanoseconds.
struct StepPrediction {
  std::int64_t step = 0;           ///< on the computed clock
  std::int64_t computation = 0;    ///< sum over the compute lane
  std::int64_t communication = 0;  ///< sum over all collectives of a rank, each as if alone on the link
  /// Something runs at any time, and it is either a computation or a collective.
  std::int64_t exposed_communication() const { return step - computation; }
};

/// The steady step with `times`, clock::emulated_times(). What it does not know: ranks that differ, the time of
/// copies, optimizer and host.
StepPrediction predict_step(const schedule::Training& training, clock::OpTimes times);

}  // namespace fsdpbench::account
