#pragma once

#include <memory>

#include "launch/joining.h"
#include "launch/session.h"

namespace fsdpbench::launch {

/// Joins the job of `placement`: finds rank 0 (at root_host:root_port, else through a file in the folder of
/// FSDPBENCH_RENDEZVOUS), connects, and checks that all ranks are there and run the same version. Throws BackendError that
/// says which ranks are missing after `deadline_s`.
std::unique_ptr<Session> join(const Placement& placement, const JoinOptions& options = {});

/// The job at root_host:root_port of `placement`; at a loopback address if all its ranks are on one host. The secret is
/// FSDPBENCH_SECRET of `environment`, or what rank 0 leaves in a file that only its user may read: in
/// FSDPBENCH_RENDEZVOUS, or, for ranks of one host, in private_folder(). Throws ConfigError if there is no way to share
/// one, and what keep_trying() throws.
Joined join_at_address(const Placement& placement, const Introduction& self, Deadline deadline,
                       const Environment& environment);

}  // namespace fsdpbench::launch
