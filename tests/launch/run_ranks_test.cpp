#include "launch/run_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

namespace fsdpbench::launch {
namespace {

TEST(RunRanks, CallsEveryRankOnceOnItsOwnThread) {
  std::mutex mutex;
  std::multiset<int> ranks;
  std::set<std::thread::id> threads;
  std::atomic<int> present{0};
  run_ranks(5, [&](int rank) {
    {
      const std::lock_guard lock(mutex);
      ranks.insert(rank);
      threads.insert(std::this_thread::get_id());
    }
    ++present;
    while (present < 5) std::this_thread::yield();  // all at once, not one after another
  });
  EXPECT_EQ(ranks, (std::multiset<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(threads.size(), 5U);
}

/// Says when the thread that has made one ends, which is after run_ranks() has taken what it threw.
class ThreadEnd {
 public:
  explicit ThreadEnd(std::atomic<bool>& ended) : ended_(ended) {}
  ~ThreadEnd() { ended_ = true; }
  ThreadEnd(const ThreadEnd&) = delete;
  ThreadEnd& operator=(const ThreadEnd&) = delete;

 private:
  std::atomic<bool>& ended_;
};

TEST(RunRanks, RethrowsTheEarliestFailureWithItsType) {
  std::atomic<bool> first_taken{false};
  try {
    run_ranks(3, [&](int rank) {
      if (rank == 2) {
        thread_local const ThreadEnd end(first_taken);
        throw ResourceError("first");
      }
      while (!first_taken) std::this_thread::yield();
      throw std::runtime_error("later");
    });
    FAIL() << "nothing was thrown";
  } catch (const ResourceError& e) {
    EXPECT_STREQ(e.what(), "first");
  }
}

TEST(RunRanks, PrefersACauseToAFollowerThatWasFaster) {
  std::atomic<bool> follower_taken{false};
  try {
    run_ranks(2, [&](int rank) {
      if (rank == 0) {
        thread_local const ThreadEnd end(follower_taken);
        throw Stopped("the cause");
      }
      while (!follower_taken) std::this_thread::yield();
      throw std::logic_error("the cause");
    });
    FAIL() << "nothing was thrown";
  } catch (const std::logic_error&) {
  }
}

TEST(RunRanks, RethrowsAFollowerIfThereIsNothingElse) {
  EXPECT_THROW(run_ranks(2, [](int) { throw Stopped("x"); }), Stopped);
}

}  // namespace
}  // namespace fsdpbench::launch
