#pragma once

#include <nccl.h>

#include "backend/cuda/id_exchange.h"

namespace fsdpbench::backend::cuda {

/// The id of the world's communicator: rank 0 makes it, all get it. With NCCL_COMM_ID in the environment NCCL gives
/// every rank the same id, and none travels. Collective.
ncclUniqueId exchange_nccl_id(IdExchange& ids, int rank);

}  // namespace fsdpbench::backend::cuda
