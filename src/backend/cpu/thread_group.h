#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

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

}  // namespace fsdpbench::backend::cpu
