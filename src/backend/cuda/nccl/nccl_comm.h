#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/cuda/lane_access.h"
#include "backend/cuda/nccl/call_guard.h"
#include "backend/cuda/nccl/nccl_version.h"
#include "base/abort_guard.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// Device memory of the current device from ncclMemAlloc: the kind that NCCL can register for every transport it has.
/// To be freed after the communicators that registered it are gone.
class RegisteredArena {
 public:
  /// Throws ResourceError if the device has not so much, BackendError with NCCL's words otherwise.
  explicit RegisteredArena(std::size_t bytes);
  ~RegisteredArena();
  RegisteredArena(const RegisteredArena&) = delete;
  RegisteredArena& operator=(const RegisteredArena&) = delete;

  std::span<std::byte> memory() const { return memory_; }

 private:
  std::span<std::byte> memory_;
};

class NcclComm;

/// Deadlines for NCCL, after which a rank ends the run.
struct NcclDeadlines {
  std::chrono::duration<double> op{60};                                       ///< one collective, or one call of NCCL
  std::chrono::milliseconds abort{5000};                                      ///< all of ncclCommAbort
  std::function<void(const std::string& last_words)> give_up = exit_at_once;  ///< when `abort` is over; on any thread
};

/// Host time that launching collectives took.
struct LaunchTimes {
  std::int64_t count = 0;
  std::chrono::nanoseconds all{0};
  std::chrono::nanoseconds longest{0};

  void add(std::chrono::nanoseconds time) {
    ++count;
    all += time;
    longest = std::max(longest, time);
  }
};

/// All NCCL communicators of one rank, and their end: a failure of NCCL, an op that does not finish or the run's abort
/// aborts all of them, once, from the rank's host thread, which makes all calls here.
class NcclRank {
 public:
  /// Watches over the lanes' waits from now on. The current device is the rank's; `lanes` must outlive this.
  NcclRank(LaneAccess& lanes, int rank, const NcclOptions& options, NcclDeadlines deadlines);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// The communicator of all ranks, or those of `parent` with equal `color`. Collective. Owned by this.
  NcclComm& init(int ranks, const ncclUniqueId& id);
  NcclComm& split(NcclComm& parent, int color, int key);
  /// Ends `comm` in peace; collective. In a run that fails it is left to be aborted with the others. Call last.
  void close(NcclComm& comm) noexcept;

  /// Throws if the run is aborted or anything is wrong with NCCL on this rank.
  void check();
  /// Throws launch::Stopped if the run is aborted, after aborting this rank's communicators.
  void stop_if_aborted();
  /// Makes `what` the run's failure if it is the first, aborts this rank's communicators, and throws.
  [[noreturn]] void fail(const std::string& what);
  /// Blocks the host, checking, until `done`.
  void wait(const std::function<bool()>& done);

  LaneAccess& lanes() { return lanes_; }
  int rank() const { return rank_; }
  const NcclOptions& options() const { return options_; }
  const NcclDeadlines& deadlines() const { return deadlines_; }
  /// A stream and four bytes of device memory for barriers.
  cudaStream_t own_stream() const { return own_stream_; }
  void* own_memory() const { return own_memory_; }
  /// Guards calls that return when they are done; null if communicators are not blocking.
  CallGuard* call_guard() const { return call_guard_.get(); }

  /// Number of communicators that asked for a window of the lanes' memory, and how many got a handle.
  int windows_asked = 0;
  int windows_made = 0;
  LaunchTimes launches;  ///< of all communicators

 private:
  void abort_all() noexcept;
  std::string unfinished() const;

  LaneAccess& lanes_;
  const int rank_;
  const NcclOptions options_;
  const NcclDeadlines deadlines_;
  cudaStream_t own_stream_ = nullptr;
  void* own_memory_ = nullptr;
  std::unique_ptr<CallGuard> call_guard_;
  std::vector<std::unique_ptr<NcclComm>> comms_;
  bool aborted_ = false;
};

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

  /// Function that enqueues a collective on a stream.
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
