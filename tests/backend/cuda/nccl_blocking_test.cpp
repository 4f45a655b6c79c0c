// Communicators whose calls return when they are done, and the guard over a thread that is in one.

#include <condition_variable>
#include <mutex>
#include <numeric>

#include "backend/cuda/nccl/call_guard.h"
#include "backend/cuda/nccl_support.h"

namespace fsdpbench::backend::cuda {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class NcclBlockingTest : public NcclTest {
 protected:
  static NcclRun run_of(int ranks, NcclOptions::Register registration = NcclOptions::Register::none) {
    NcclRun run{.ranks = ranks};
    run.options.blocking = true;
    run.options.registration = registration;
    if (registration != NcclOptions::Register::none) run.arena_bytes = 1 << 16;
    return run;
  }
};

TEST_F(NcclBlockingTest, CollectivesSplitsAndWindowsGiveWhatTheyGiveOtherwise) {
  fake::nccl::set_polls(1'000'000);  // of calls that do not wait until they are done
  run_of(4, NcclOptions::Register::window).run([](NcclRankContext& rank) {
    const auto pair = rank.world.split(rank.rank / 2, rank.rank);
    std::vector<float> mine(2, static_cast<float>(rank.rank + 1)), all(4), sum(2, 1.0F);
    pair->all_gather(Lane::all_gather, bytes_of(mine), bytes_of(all), 2, DType::f32, nullptr);
    rank.world.all_reduce(Lane::all_reduce, bytes_of(sum), 2, DType::f32, 0.25F, nullptr);
    rank.lanes.synchronize();
    const auto first = static_cast<float>(rank.rank / 2 * 2 + 1);
    EXPECT_EQ(all, (std::vector<float>{first, first, first + 1, first + 1}));
    EXPECT_EQ(sum, (std::vector<float>{1, 1}));
  });
  EXPECT_EQ(fake::nccl::last_config().blocking, 1);
}

TEST_F(NcclBlockingTest, OnlyThoseWhoAskForItBlock) {
  NcclRun{.ranks = 2}.run([](NcclRankContext&) {});
  EXPECT_EQ(fake::nccl::last_config().blocking, 0);
}

TEST_F(NcclBlockingTest, AnOpThatHangsOnTheGpuEndsTheRunAsOtherwise) {
  fake::nccl::hang_op(1, 2);
  NcclRun run = run_of(3);
  run.deadlines.op = milliseconds(400);
  EXPECT_THAT(run.failure([](NcclRankContext& rank) {
    std::vector<float> values(8, 1);
    for (int i = 0; i < 3; ++i) rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 8, DType::f32, 1.0F, nullptr);
    rank.lanes.synchronize();
  }),
              HasSubstr("all_reduce #2 of group world on lane all_reduce has not finished after 0.4 s"));
  EXPECT_EQ(fake::nccl::counts().aborted, 3);
}

TEST_F(NcclBlockingTest, WhatNcclRefusesIsSaidWithItsWords) {
  fake::nccl::fail_init(1, ncclSystemError, "no socket");
  launch::Abort abort;
  NcclRun run = run_of(2);
  run.shared_abort = &abort;
  EXPECT_THAT(run.failure([&](NcclRankContext&) {
    while (!abort.is_set()) std::this_thread::sleep_for(milliseconds(1));  // not in a call of NCCL
    abort.throw_if_set();
  }),
              MatchesRegex("rank 1: ncclCommInitRankConfig of group world failed: .*no socket.*"));
}

/// Messages of a guard at the end, and the wait for them.
class LastWords {
 public:
  std::function<void(const std::string&)> keep() {
    return [this](const std::string& words) {
      const std::lock_guard lock(mutex_);
      words_ = words;
      ++times_;
      changed_.notify_all();
    };
  }
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return times_ > 0; });
    return words_;
  }
  int times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string words_;
  int times_ = 0;
};

TEST(NcclCallGuard, GivesUpOnACallThatDoesNotReturn) {
  launch::Abort abort;
  LastWords words;
  CallGuard guard(abort, {milliseconds(50), hours(1)}, "rank 3", words.keep());
  guard.enter("ncclCommSplit", "world");
  EXPECT_THAT(words.wait(), AllOf(HasSubstr("rank 3: ncclCommSplit of group world has not returned after 0.05 s. "),
                                  HasSubstr("nccl.blocking = false")));
}

TEST(NcclCallGuard, GivesUpSoonerOnceTheRunHasFailed) {
  launch::Abort abort;
  LastWords words;
  CallGuard guard(abort, {hours(1), milliseconds(50)}, "rank 0", words.keep());
  guard.enter("ncclAllGather", "shard");
  abort.set(std::make_exception_ptr(std::runtime_error("another rank has failed")));
  EXPECT_THAT(words.wait(),
              HasSubstr("ncclAllGather of group shard has not returned after 0.05 s, and the run has failed"));
}

TEST(NcclCallGuard, SaysNothingOfCallsThatReturn) {
  launch::Abort abort;
  LastWords words;
  {
    CallGuard guard(abort, {hours(1), milliseconds(0)}, "rank 0", words.keep());
    for (int i = 0; i < 1000; ++i) {
      guard.enter("ncclAllGather", "shard");
      guard.leave();
    }
    abort.set(std::make_exception_ptr(std::runtime_error("another rank has failed")));
    std::this_thread::sleep_for(milliseconds(100));  // in no call, for some looks of the guard
  }
  EXPECT_EQ(words.times(), 0);
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
