#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/cpu/lane_worker.h"
#include "backend/cpu/link.h"
#include "backend/cpu/peers.h"
#include "backend/cpu/wait_point.h"

namespace fsdpbench::backend::cpu {

/// A barrier for `members` threads that an abort ends. Reusable.
class Barrier {
 public:
  Barrier(launch::Abort& abort, int members) : members_(members), released_(abort) {}

  /// Returns when all members have called it. The last to arrive runs `on_last` before anybody returns.
  /// Throws BackendError if a member can never come (see member_ended).
  template <class OnLast>
  void arrive_and_wait(OnLast on_last) {
    const std::uint32_t phase = phase_.load();
    if (arrived_.fetch_add(1) + 1 == members_) {
      on_last();
      arrived_.store(0);
      phase_.store(phase + 1);
      released_.notify();
    } else {
      wait_for_release(phase);
    }
  }
  void arrive_and_wait() {
    arrive_and_wait([] {});
  }

  /// A member will call no more: whoever waits for it, now or later, fails instead of hanging.
  void member_ended() {
    ended_.store(true);
    released_.notify();
  }

 private:
  void wait_for_release(std::uint32_t phase);

  const int members_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> phase_{0};
  std::atomic<bool> ended_{false};
  WaitPoint released_;
};

class Team;

/// A group of threads of one process: all see each other's memory.
class ThreadGroup : public Group {
 public:
  /// `world_ranks`: the members, in group order. The group becomes known to `team`.
  static std::shared_ptr<ThreadGroup> make(Team& team, std::vector<int> world_ranks);

  int size() const override { return static_cast<int>(world_ranks_.size()); }
  void run(int rank, const CollectiveCall& call, Stamp& stamp) override;
  void host_barrier() override { host_barrier_.arrive_and_wait(); }
  std::shared_ptr<Group> split(int rank, int color, int key, int& new_rank) override;
  void member_ended(int world_rank) override;
  void wait_ended() override {}

 private:
  struct SplitRequest {
    int color = 0;
    int key = 0;
    std::shared_ptr<Group> group;
  };

  ThreadGroup(Team& team, std::vector<int> world_ranks);
  void meet(const CollectiveCall& call);

  Team& team_;
  const std::vector<int> world_ranks_;
  std::vector<CollectiveCall> calls_;  ///< by rank; valid between the meeting and the parting
  std::int64_t all_arrived_ns_ = 0;
  std::shared_ptr<Transfer> transfer_;
  Barrier lane_barrier_;
  Barrier host_barrier_;
  std::vector<SplitRequest> split_requests_;
};

class CpuDevice;

/// One rank's side of a Group: puts collectives on the device's lanes and keeps them in issue order.
/// May be destroyed while its collectives are still queued.
class CpuCommunicator : public Communicator {
 public:
  /// `device` must outlive this.
  CpuCommunicator(CpuDevice& device, std::shared_ptr<Group> group, int rank);

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override { return wire_bytes_; }

 private:
  /// Lets one collective after the other pass, in the order of their numbers. Shared with the queued collectives.
  class Turnstile;

  CpuDevice& device_;
  std::shared_ptr<Group> group_;
  int rank_;
  std::int64_t issued_ = 0;
  std::shared_ptr<Turnstile> turnstile_;
  WireBytes wire_bytes_{};
};

/// Lanes are threads. Ranks are threads of this process and communicate through its memory or, with a session, one a
/// process: those of one host communicate through memory that they share, if they can, the others by messages.
class CpuBackend : public Backend {
 public:
  /// `kernels` makes the kernels of each lane of each rank, on the lane's own thread.
  explicit CpuBackend(KernelsFactory kernels) : kernels_(std::move(kernels)) {}

  std::string name() const override { return "cpu"; }
  Facts facts() const override;
  /// With a session `body` runs on the calling thread, and a failure of another process is thrown as a BackendError.
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override;

 private:
  KernelsFactory kernels_;
  std::string ranks_ = "threads of one process";  ///< of the latest run
};

}  // namespace fsdpbench::backend::cpu
