#pragma once

#include <nccl.h>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "backend/backend.h"
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
