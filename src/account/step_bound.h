#pragma once

#include <cstdint>

#include "account/step_view.h"
#include "base/lane.h"

namespace fsdpbench::account {

/// The least time in which one rank's ops of a step can run as they depend on each other, whatever the other ranks do:
/// every op takes as long as it did (a collective from the arrival of its last peer on) and begins as soon as its lane,
/// its communicator, its events and the host's waits allow; issuing costs nothing. clock::max_plus_bound() of a run of
/// this rank alone, with the chain of ops that takes so long.
struct StepBound {
  std::int64_t ns = 0;
  Lane lane = Lane::compute;  ///< the one with most of the chain
  std::int64_t lane_ns = 0;   ///< what of the chain runs there
};

StepBound step_bound(const StepView& step);

}  // namespace fsdpbench::account
