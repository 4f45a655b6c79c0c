#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "backend/cpu/wait_point.h"

namespace fsdpbench::testing {

/// First core that this thread may use, alone for it and for threads that it starts.
class OneCore {
 public:
  OneCore() {
    cpu_set_t one;
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

/// Where the system keeps no count of waits for a core, it stays 0 for ever.
inline bool core_waits_are_counted() {
  std::int64_t total = 0;
  std::thread([&] {
    const backend::cpu::CoreWait wait;
    for (int i = 0; i < 10'000 && total == 0; ++i) {
      sched_yield();
      total = wait.total_ns();
    }
  }).join();
  return total > 0;
}

}  // namespace fsdpbench::testing
