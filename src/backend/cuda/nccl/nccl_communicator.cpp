#include "backend/cuda/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <utility>

#include "backend/cuda/nccl/nccl_id.h"
#include "backend/cuda/nccl/nccl_log.h"
#include "backend/cuda/nccl/solo_communicator.h"
#include "backend/wire_bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclRank> rank, NcclComm& comm, IdExchange* ids)
    : rank_(std::move(rank)), comm_(comm), ids_(ids) {}

NcclCommunicator::~NcclCommunicator() {
  // While an exception is on its way the others do not come here: what is left is aborted with NcclRank.
  if (std::uncaught_exceptions() == exceptions_at_birth_) rank_->close(comm_);
}

void NcclCommunicator::run(Collective kind, Lane lane, std::int64_t count, DType dtype, const NcclComm::Launch& launch,
                           Stamp* stamp) {
  comm_.run(kind, lane, launch, stamp);
  wire_bytes_[static_cast<std::size_t>(kind)] += ring_bytes(kind, count * size_of(dtype), size());
}

void NcclCommunicator::all_gather(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                                  Stamp* stamp) {
  const auto launch = [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(input, output, static_cast<std::size_t>(count), nccl_type(dtype), comm, stream);
  };
  run(Collective::all_gather, lane, count, dtype, launch, stamp);
}

void NcclCommunicator::reduce_scatter(Lane lane, const std::byte* input, std::byte* output, std::int64_t count,
                                      DType dtype, float scale, Stamp* stamp) {
  const ncclRedOp_t op = comm_.reduction(dtype, scale);
  const auto launch = [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclReduceScatter(input, output, static_cast<std::size_t>(count), nccl_type(dtype), op, comm, stream);
  };
  run(Collective::reduce_scatter, lane, count, dtype, launch, stamp);
}

void NcclCommunicator::all_reduce(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, float scale,
                                  Stamp* stamp) {
  const ncclRedOp_t op = comm_.reduction(dtype, scale);
  const auto launch = [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(buffer, buffer, static_cast<std::size_t>(count), nccl_type(dtype), op, comm, stream);
  };
  run(Collective::all_reduce, lane, count, dtype, launch, stamp);
}

void NcclCommunicator::broadcast(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, int root,
                                 Stamp* stamp) {
  if (root < 0 || root >= size()) {
    throw BackendError(fmt::format("broadcast from rank {} of a group of {}", root, size()));
  }
  const auto launch = [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, static_cast<std::size_t>(count), nccl_type(dtype), root, comm, stream);
  };
  run(Collective::broadcast, lane, count, dtype, launch, stamp);
}

void NcclCommunicator::all_to_all(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                                  Stamp* stamp) {
  // A send to each and a receive from each, in one group, so that they go at once; ncclAlltoAll does the same, and
  // older NCCLs have none.
  const auto launch = [&](ncclComm_t comm, cudaStream_t stream) {
    if (count == 0) return ncclSuccess;
    const std::int64_t slice = count * size_of(dtype);
    const auto elements = static_cast<std::size_t>(count);
    const auto refused = [](ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; };
    ncclResult_t result = ncclGroupStart();
    for (int peer = 0; peer < size() && !refused(result); ++peer) {
      result = ncclSend(input + peer * slice, elements, nccl_type(dtype), peer, comm, stream);
      if (refused(result)) break;
      result = ncclRecv(output + peer * slice, elements, nccl_type(dtype), peer, comm, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return refused(result) ? result : ended;
  };
  run(Collective::all_to_all, lane, count, dtype, launch, stamp);
}

void NcclCommunicator::barrier() {
  rank_->stop_if_aborted();
  if (ids_ != nullptr) {
    ids_->barrier(rank());
  } else {
    comm_.barrier();
  }
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  rank_->stop_if_aborted();
  NcclComm& part = rank_->split(comm_, color, key);
  if (part.size() > 1) return std::make_unique<NcclCommunicator>(rank_, part, nullptr);
  rank_->close(part);
  return std::make_unique<SoloCommunicator>(rank_->lanes());
}

std::unique_ptr<Communicator> make_nccl_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                     const NcclOptions& options, NcclDeadlines deadlines) {
  open_nccl_log();
  require_nccl(options);
  const ncclUniqueId id = exchange_nccl_id(ids, rank);
  auto nccl_rank = std::make_shared<NcclRank>(lanes, rank, options, std::move(deadlines));
  NcclComm& world = nccl_rank->init(ranks, id);
  return std::make_unique<NcclCommunicator>(std::move(nccl_rank), world, &ids);
}

}  // namespace fsdpbench::backend::cuda
