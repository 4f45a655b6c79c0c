#pragma once

#include <cstdint>

#include "clock/op_times.h"
#include "schedule/training.h"

namespace fsdpbench::account {

/// A step without a machine, in nanoseconds.
struct StepPrediction {
  std::int64_t step = 0;           ///< on the computed clock
  std::int64_t computation = 0;    ///< sum over the compute lane
  std::int64_t update = 0;         ///< when the first update of it begins
  std::int64_t communication = 0;  ///< sum over all collectives of a rank, each as if alone on the link
  /// Something runs at any time, and it is either a computation or a collective.
  std::int64_t exposed_communication() const { return step - computation; }
};

/// The steady step with `times`, clock::emulated_times(). What it does not know: ranks that differ, the time of
/// copies, optimizer and host.
StepPrediction predict_step(const schedule::Training& training, clock::OpTimes times);

}  // namespace fsdpbench::account
