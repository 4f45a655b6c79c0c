#pragma once

#include <nccl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "backend/communicator.h"
#include "backend/cuda/nccl/nccl_version.h"
#include "backend/cuda/nccl/ops_in_flight.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

class NcclRank;

/// One NCCL communicator of one rank: waits out every call's ncclInProgress (a blocking one's calls return when they
/// are done), numbers the collectives and knows which are unfinished. For the rank's host thread. Everything that goes
/// wrong goes to NcclRank::fail().
class NcclComm {
 public:
  NcclComm(NcclRank& rank, std::string name);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Exactly one of these first; collective. The lanes' memory is registered as the run wishes.
  void init(int ranks, const ncclUniqueId& id, int rank);
  void split_from(NcclComm& parent, int color, int key);

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  int rank() const { return rank_in_group_; }
  int size() const { return size_; }

  /// What enqueues a collective on a stream.
  using Launch = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  /// One collective on a lane: `launch` is called at once.
  void run(Collective kind, Lane lane, const Launch& launch, Stamp* stamp);
  /// Blocks until all ranks of the group have called it.
  void barrier();

  /// The NCCL operator for `scale` times the sum. NCCL rounds in its own way: ncclAvg (scale = 1/size) and
  /// ncclRedOpCreatePreMulSum multiply each rank's values before they are added, with the factor rounded to the
  /// dtype, and every hop of a ring rounds its partial sum to the dtype.
  ncclRedOp_t reduction(DType dtype, float scale);

  /// To NcclRank::fail() if NCCL has an error for this communicator, or an op runs longer than the deadline.
  void check();
  /// The oldest unfinished op, for people: "all_gather #412 of group shard on lane all_gather"; empty if none.
  std::string oldest_op();
  /// Ends in peace; collective.
  void finish();
  /// ncclCommAbort, at most once.
  void abort() noexcept;

 private:
  /// Calls NCCL with this communicator and waits while it works on it. `name`: of the function.
  void settle(const char* name, const std::function<ncclResult_t()>& call);
  ncclResult_t outcome(const char* name, ncclResult_t returned);
  [[noreturn]] void fail(const std::string& what, ncclResult_t result);
  ncclComm_t handle() const;
  void ready();
  void register_memory();
  void deregister_memory();
  /// Puts a collective into the capture of this number.
  void capture_op(int capture, Collective kind, Lane lane, const Launch& launch, Stamp* stamp);
  void launch_op(Collective kind, Lane lane, cudaStream_t stream, const Launch& launch);

  NcclRank& rank_;
  std::string name_;
  std::unique_ptr<ncclComm_t> handle_;  ///< NCCL's threads may write to it while `pending_`
  bool pending_ = false;
  bool ended_ = false;
  int rank_in_group_ = 0;
  int size_ = 0;  ///< 0: not made yet
  OpsInFlight ops_;
  std::map<std::pair<DType, float>, ncclRedOp_t> reductions_;
  void* registration_ = nullptr;
  NcclWindow window_ = nullptr;
};

/// Throws std::logic_error for a dtype that does not travel.
ncclDataType_t nccl_type(DType dtype);

}  // namespace fsdpbench::backend::cuda
