#pragma once

#include "launch/handshake.h"
#include "launch/placement.h"
#include "launch/session.h"

namespace fsdpbench::launch {

/// What this process says of itself.
Introduction introduce(const Placement& placement, const JoinOptions& options);
/// Throws BackendError with a sentence that says what to set if the port cannot be had.
Socket listen_as_root(const Placement& placement);
/// Tries again until rank 0 is there and takes this process in; throws BackendError after `deadline`.
Joined join_at_address(const Placement& placement, const Introduction& self, Deadline deadline);

}  // namespace fsdpbench::launch
