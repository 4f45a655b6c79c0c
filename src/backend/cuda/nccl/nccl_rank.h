#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/lane_access.h"
#include "base/abort_guard.h"
#include "backend/cuda/nccl/call_guard.h"

namespace fsdpbench::backend::cuda {

class NcclComm;

/// How long a rank waits for NCCL before it ends the run.
struct NcclDeadlines {
  std::chrono::duration<double> op{60};                                       ///< one collective, or one call of NCCL
  std::chrono::milliseconds abort{5000};                                      ///< all of ncclCommAbort
  std::function<void(const std::string& last_words)> give_up = exit_at_once;  ///< when `abort` is over; on any thread
};

/// What launching collectives took of the host's time.
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
  /// Of calls that return when they are done; null if communicators are not blocking.
  CallGuard* call_guard() const { return call_guard_.get(); }

  /// Of communicators that asked for a window of the lanes' memory, those that got a handle.
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

}  // namespace fsdpbench::backend::cuda
