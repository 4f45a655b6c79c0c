#pragma once
#include "account/step_view.h"
#include "trace/facts.h"

namespace fsdpbench::account {

/// The least time in which one rank's ops of a step can run as they depend on each other, whatever the other ranks do:
/// every op takes as long as it did (a collective from the arrival of its last peer on) and begins as soon as its lane,
/// its communicator, its events and the host's waits allow; issuing costs nothing. clock::max_plus_bound() of a run of
/// this rank alone, with the chain of ops that takes so long.
trace::StepBound step_bound(const StepView& step);

}  // namespace fsdpbench::account
