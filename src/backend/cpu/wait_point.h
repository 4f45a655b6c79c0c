#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "launch/clock_offset.h"

namespace fsdpbench::backend::cpu {

/// Time that its thread has been ready to run while all cores that it may use ran others: what Linux keeps
/// of each thread (the second number of /proc/thread-self/schedstat, "run delay"). For that thread only.
class CoreWait {
 public:
  CoreWait();
  ~CoreWait();
  CoreWait(const CoreWait&) = delete;
  CoreWait& operator=(const CoreWait&) = delete;

  /// Since the thread began, in nanoseconds; it never shrinks. 0 where the system does not tell.
  std::int64_t total_ns() const;

 private:
  int file_;  // -1: there is none
};

/// Place to sleep until a condition on atomics holds; every blocking wait of this backend is one of these, so
/// an abort reaches them all. Whoever makes a condition true calls notify() after that. A notify without waiters
/// costs a few nanoseconds. Thread-safe.
class WaitPoint : private launch::Abort::Listener {
 public:
  explicit WaitPoint(launch::Abort& abort) : abort_(abort) { abort_.add(*this); }
  ~WaitPoint() override { abort_.remove(*this); }
  WaitPoint(const WaitPoint&) = delete;
  WaitPoint& operator=(const WaitPoint&) = delete;

  /// Returns once `ready()`; throws launch::Stopped if the team is aborted before that. Gives the core away
  /// `yields` times before it sleeps: on crowded cores a peer often needs just that to arrive.
  template <class Ready>
  void wait(Ready ready, int yields = 0) {
    for (;;) {
      const std::uint32_t seen = begin_wait();
      if (ready()) break;
      if (abort_.is_set()) {
        end_wait();
        abort_.throw_if_set();
      }
      if (yields-- > 0) {
        yield();
      } else {
        sleep(seen);
      }
      end_wait();
    }
    end_wait();
  }

  /// As wait(), but also returns at `deadline_ns` of base/clock.h. It sleeps, and wakes up a little early (as much
  /// as this thread's wake-ups used to be late, 60 us at most) to meet the deadline within microseconds.
  template <class Ready>
  void wait_until(std::int64_t deadline_ns, Ready ready) {
    for (;;) {
      const std::uint32_t seen = begin_wait();
      const bool done = ready();
      if (done || abort_.is_set()) {
        end_wait();
        if (done) return;
        abort_.throw_if_set();
      }
      const bool more = sleep_until(seen, deadline_ns);
      end_wait();
      if (!more) return;
    }
  }

  void notify() {
    epoch_.fetch_add(1);
    if (waiters_.load() > 0) wake();
  }

 private:
  void aborted() override { notify(); }
  std::uint32_t begin_wait() {
    waiters_.fetch_add(1);
    return epoch_.load();
  }
  void end_wait() { waiters_.fetch_sub(1); }
  static void yield();
  void sleep(std::uint32_t seen);
  /// False once the deadline has passed; true if woken before.
  bool sleep_until(std::uint32_t seen, std::int64_t deadline_ns);
  void wake();

  launch::Abort& abort_;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::int32_t> waiters_{0};
};

}  // namespace fsdpbench::backend::cpu
