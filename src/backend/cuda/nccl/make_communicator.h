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

/// The communicator of all ranks. Collective; the current device is the rank's. `lanes` must outlive it.
/// One rank: copies, no NCCL.
std::unique_ptr<Communicator> make_world_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                      const NcclOptions& options);

/// The NCCL this process runs with, for people: "2.28.9 (built with 2.28.9)".
std::string nccl_version();

}  // namespace fsdpbench::backend::cuda
