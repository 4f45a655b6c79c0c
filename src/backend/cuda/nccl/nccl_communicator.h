#pragma once

#include <nccl.h>
#include <exception>
#include <memory>
#include <string_view>

#include "backend/communicator.h"
#include "backend/cuda/id_exchange.h"
#include "backend/cuda/lane_access.h"
#include "backend/cuda/nccl/nccl_comm.h"

namespace fsdpbench::backend::cuda {

/// The id of the world's communicator: rank 0 makes it, all get it. With NCCL_COMM_ID in the environment NCCL gives
/// every rank the same id, and none travels. Collective.
ncclUniqueId exchange_nccl_id(IdExchange& ids, int rank);

/// A group of one rank: copies and scaling on the lane's stream, no NCCL.
class SoloCommunicator : public Communicator {
 public:
  /// `lanes` must outlive this.
  explicit SoloCommunicator(LaneAccess& lanes) : lanes_(lanes) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) override;
  void barrier() override { lanes_.abort().throw_if_set(); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override { return wire_bytes_; }

 private:
  LaneAccess& lanes_;
  const WireBytes wire_bytes_{};
};

/// One rank's side of a group of several, by NCCL. Collectives of one communicator run one after another in issue
/// order whatever their streams: NCCL itself orders them with events.
///
/// Destroying it in peace is collective. In a run that fails nothing waits for others: it is aborted with the rest.
class NcclCommunicator : public Communicator {
 public:
  /// `ids`: barriers of the world; null for groups made by split.
  NcclCommunicator(std::shared_ptr<NcclRank> rank, NcclComm& comm, IdExchange* ids);
  ~NcclCommunicator() override;

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override { return wire_bytes_; }
  void set_name(std::string_view name) override { comm_.set_name(std::string(name)); }

  const NcclRank& nccl_rank() const { return *rank_; }

 private:
  std::shared_ptr<NcclRank> rank_;
  NcclComm& comm_;
  IdExchange* ids_;
  WireBytes wire_bytes_{};
  const int exceptions_at_birth_ = std::uncaught_exceptions();
};

/// As make_world_communicator for several ranks, with deadlines of the caller's choice.
std::unique_ptr<Communicator> make_nccl_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                     const NcclOptions& options, NcclDeadlines deadlines);

}  // namespace fsdpbench::backend::cuda
