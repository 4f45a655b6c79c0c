#include "base/error.h"
#include "launch/mpi_join.h"

namespace fsdpbench::launch {

bool has_mpi() { return false; }

std::unique_ptr<Session> join_with_mpi(const Placement&, const JoinOptions&) {
  throw BackendError("this build of fsdpbench has no MPI");
}

}  // namespace fsdpbench::launch
