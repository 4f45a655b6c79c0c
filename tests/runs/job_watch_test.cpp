#include "runs/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "support/local_channels.h"

namespace fsdpbench::app {
namespace {

constexpr int kRankFailed = static_cast<int>(ExitCode::rank_failed);

TEST(JobWatch, KnowsNothingOfAFailureWhileThereIsNone) {
  fsdpbench::testing::LocalChannels hub(2);
  const auto channel = hub.channel(0);
  JobWatch watch(*channel);
  EXPECT_FALSE(watch.failure_code().has_value());
}

TEST(JobWatch, SaysOnceOnRank0WhatHasHappened) {
  fsdpbench::testing::LocalChannels hub(3);
  const auto root = hub.channel(0);
  const auto other = hub.channel(1);
  ::testing::internal::CaptureStderr();
  {
    JobWatch root_watch(*root);
    JobWatch other_watch(*other);
    hub.channel(2)->fail("rank 2 has no more memory");
    EXPECT_EQ(root_watch.failure_code(10), kRankFailed);
    EXPECT_EQ(root_watch.failure_code(), kRankFailed);
    EXPECT_EQ(other_watch.failure_code(10), kRankFailed);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: rank 2 has no more memory\n");
}

TEST(JobWatchDeathTest, EndsAProcessThatIsStuckAfterAFailureAndSaysWhere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto get_stuck = [] {
    fsdpbench::testing::LocalChannels hub(2);
    const auto channel = hub.channel(1);
    JobWatch watch(*channel, {0.1, 30});
    watch.doing("training");
    hub.channel(0)->fail("rank 0 failed");
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(get_stuck(), ::testing::ExitedWithCode(kRankFailed),
              "rank 1 had to be ended: it was still training 0.1 s after the failure of the job was known");
}

TEST(JobWatchDeathTest, EndsAProcessThatCannotLeaveItsJob) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto get_stuck = [] {
    fsdpbench::testing::LocalChannels hub(2);
    const auto channel = hub.channel(0);
    JobWatch watch(*channel, {8, 0.1});
    watch.leave();
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(get_stuck(), ::testing::ExitedWithCode(kRankFailed),
              "rank 0 had to be ended: it was still leaving 0.1 s after its work had ended");
}

}  // namespace
}  // namespace fsdpbench::app
