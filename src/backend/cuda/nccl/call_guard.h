#pragma once

#include <cuda_runtime_api.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/communicator.h"
#include "base/lane.h"
#include "launch/clock_offset.h"

namespace fsdpbench::backend::cuda {

/// The collectives of one communicator that the GPU may not have finished, in issue order, with the events that tell.
/// For the rank's host thread.
class OpsInFlight {
 public:
  using Clock = std::chrono::steady_clock;
  struct Op {
    std::int64_t number = 0;  ///< counted from 1 on this communicator; equal on all its ranks
    Collective kind = Collective::all_gather;
    Lane lane = Lane::compute;
    cudaEvent_t began = nullptr;
    cudaEvent_t ended = nullptr;
    bool launched = false;              ///< `ended` is recorded
    bool running = false;               ///< seen to have begun
    Clock::time_point running_since{};  ///< when that was first seen
  };

  OpsInFlight() = default;
  ~OpsInFlight();
  OpsInFlight(const OpsInFlight&) = delete;
  OpsInFlight& operator=(const OpsInFlight&) = delete;

  /// Makes `stream`, which is the lane's, wait for the last op if another lane has it. NCCL keeps the order itself, but
  /// behind what times the next op: to wait for this rank's own earlier collective is no part of that one.
  void follow(Lane lane, cudaStream_t stream);
  /// Around what enqueues one op on `stream`.
  void begin(Collective kind, Lane lane, cudaStream_t stream);
  void end(cudaStream_t stream);

  /// Asks the GPU: forgets the ops that are done, and returns the oldest that is not, null if all are. An op before
  /// which its lane still has other work to do has not begun, however long ago it was issued.
  const Op* oldest();
  std::int64_t issued() const { return issued_; }
  std::size_t size() const { return ops_.size(); }

 private:
  cudaEvent_t take_event();

  std::deque<Op> ops_;
  std::vector<cudaEvent_t> free_events_;
  std::int64_t issued_ = 0;
};

/// Deadlines of a call: at all, and after the run has failed.
struct CallDeadlines {
  std::chrono::duration<double> call;
  std::chrono::duration<double> after_failure;
};

/// Watches over the blocking calls of one thread, from a thread of its own. Nobody else may abort a communicator while
/// a call of it is under way, so a call that does not return can only be ended with the process: `give_up` is called
/// with last words, once.
class CallGuard {
 public:
  CallGuard(const launch::Abort& abort, CallDeadlines deadlines, std::string who,
            std::function<void(const std::string& last_words)> give_up);
  ~CallGuard();
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  /// The watched thread is in this call until leave(). No call is in another.
  void enter(const char* call, const std::string& group);
  void leave();

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;  ///< its thread is detached and may outlive this
};

}  // namespace fsdpbench::backend::cuda
