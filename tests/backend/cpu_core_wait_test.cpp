#include "backend/cpu/wait_point.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace fsdpbench::backend::cpu {
namespace {

/// Where the system keeps no such count, it stays 0 for ever.
bool system_tells() {
  std::int64_t total = 0;
  std::thread([&] {
    const CoreWait wait;
    for (int i = 0; i < 10'000 && total == 0; ++i) {
      sched_yield();
      total = wait.total_ns();
    }
  }).join();
  return total > 0;
}

TEST(CoreWait, GrowsWhileTwoThreadsWantOneCore) {
  if (!system_tells()) GTEST_SKIP() << "/proc/thread-self/schedstat counts nothing here";
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &one);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);  // for what hangs
  std::atomic<int> waited{0};
  const auto spin = [&] {
    ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    const CoreWait wait;
    const std::int64_t before = wait.total_ns();
    std::int64_t last = before;
    bool counted = false;
    while (waited.load() < 2 && std::chrono::steady_clock::now() < deadline) {
      const std::int64_t now = wait.total_ns();
      ASSERT_GE(now, last) << "it never shrinks";
      last = now;
      if (now > before && !std::exchange(counted, true)) ++waited;
    }
    EXPECT_GT(last, before);
  };
  std::array<std::thread, 2> threads{std::thread(spin), std::thread(spin)};
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fsdpbench::backend::cpu
