#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/cuda/lane_access.h"

namespace fsdpbench::backend::cuda {

/// How the ranks of one run find each other before NCCL does: NCCL's id travels here. Among threads of this process,
/// or over the session's control channel.
class IdExchange {
 public:
  virtual ~IdExchange() = default;
  /// Collective; everybody gets rank 0's bytes. Throws launch::Stopped if the run is aborted before that.
  virtual std::string from_root(int rank, std::string bytes) = 0;
  /// Collective; blocks the host.
  virtual void barrier(int rank) = 0;
};

/// The communicator of all ranks. Collective; the current device is the rank's. `lanes` and `ids` must outlive it and
/// its splits, and no collective may be under way on this device: it allocates. One rank: copies, no NCCL.
///
/// Reductions round as NCCL does, not as Communicator says: with scale != 1 each rank's values are multiplied before
/// they are added, by the scale rounded to the dtype, and partial sums are rounded to the dtype on their way.
///
/// A failure of NCCL, or an op that runs longer than options.timeout_s, is seen in the next wait of the host
/// (LaneAccess:: watch): it sets the run's abort and throws BackendError that names rank, op and group. Set the abort
/// before you destroy a communicator of a run that failed otherwise: destroying in peace is collective.
std::unique_ptr<Communicator> make_world_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                      const NcclOptions& options);

/// What is known of how `world` (from make_world_communicator) and its splits communicate: "nccl" (versions), what the
/// options asked for, "nccl transport" and what else NCCL's log told, or why it was not read.
Facts communicator_facts(const Communicator& world);

/// The NCCL this process runs with, for people: "2.28.9 (built with 2.28.9)".
std::string nccl_version();

}  // namespace fsdpbench::backend::cuda
