#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "support/one_core.h"

namespace fsdpbench::backend::cpu {
namespace {

TEST(CoreWait, GrowsWhileTwoThreadsWantOneCore) {
  if (!testing::core_waits_are_counted()) GTEST_SKIP() << "/proc/thread-self/schedstat counts nothing here";
  const testing::OneCore core;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);  // for what hangs
  std::atomic<int> waited{0};
  const auto spin = [&] {
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
