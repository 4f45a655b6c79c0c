#include "backend/cuda/nccl/nccl_id.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/cuda/nccl/nccl_version.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

ncclUniqueId make_id(int rank) {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) {
    throw BackendError(fmt::format("rank {}: ncclGetUniqueId failed: {}", rank, nccl_words(result, nullptr)));
  }
  return id;
}

}  // namespace

ncclUniqueId exchange_nccl_id(IdExchange& ids, int rank) {
  const char* const address = std::getenv("NCCL_COMM_ID");
  if (address != nullptr && *address != '\0') return make_id(rank);
  std::string bytes;
  if (rank == 0) {
    const ncclUniqueId mine = make_id(rank);
    bytes.assign(mine.internal, sizeof mine.internal);
  }
  bytes = ids.from_root(rank, std::move(bytes));
  ncclUniqueId id;
  if (bytes.size() != sizeof id.internal) {
    throw BackendError(fmt::format("rank {}: NCCL's id has {} bytes, and {} arrived from rank 0", rank,
                                   sizeof id.internal, bytes.size()));
  }
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

}  // namespace fsdpbench::backend::cuda
