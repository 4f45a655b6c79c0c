#pragma once

#include <memory>

#include "launch/session.h"

namespace fsdpbench::launch {

/// Whether this build has MPI: launch/mpi or no_mpi.cpp, as CMake chose.
bool has_mpi();
/// Joins a job that an MPI launcher started: rank 0's address travels through MPI, and so do the peers' bytes.
/// MPI is initialised here, and finalised by the session's destructor only after a clean end of all ranks. Throws
/// BackendError if this process and MPI do not agree on the job.
std::unique_ptr<Session> join_with_mpi(const Placement& placement, const JoinOptions& options);

}  // namespace fsdpbench::launch
