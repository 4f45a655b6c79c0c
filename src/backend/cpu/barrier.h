#pragma once

#include <atomic>
#include <cstdint>

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

}  // namespace fsdpbench::backend::cpu
