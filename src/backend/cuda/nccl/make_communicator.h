#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/cuda/id_exchange.h"
#include "backend/cuda/lane_access.h"

namespace fsdpbench::backend::cuda {

/// The variables set in this process's environment that change how NCCL communicates, as "NCCL_ALGO=Ring
/// NCCL_PROTO=LL": some come before the options of a run. Only those that are known; empty if none is set.
std::string nccl_environment();

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

/// Facts about how `world` (from make_world_communicator) and its splits communicate: "nccl" (versions), what the
/// options and the environment asked for, and what launches took.
Facts communicator_facts(const Communicator& world);

}  // namespace fsdpbench::backend::cuda
