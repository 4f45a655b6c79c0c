#pragma once

// Duties of every backend when a rank fails; instantiated as the suites of backend/conformance.h.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "backend/conformance.h"

namespace fsdpbench::backend {

/// One rank fails while the others wait somewhere: all must end, with that rank's message. A rank that hangs fails
/// the test by its time limit.
class FailureConformance : public BackendConformance<MakeBackend> {
 protected:
  static constexpr int kRanks = 3;
  void SetUp() override { skip_unless(kRanks); }
  static std::string failure(const Body& body) {
    BackendOptions options;
    options.ranks = kRanks;
    return failure_of(GetParam(), options, body);
  }
  static void fail_in_lane(RankContext& rank) {
    rank.device.enqueue(
        Lane::copy, "bad op",
        [](Kernels& kernels) {
          kernels.delay(2 * kMillisecond);
          throw std::runtime_error("broken on purpose");
        },
        nullptr);
  }
};

TEST_P(FailureConformance, InALaneWhileOthersAreInACollective) {
  EXPECT_EQ(failure([](RankContext& rank) {
              std::byte* buffer = reserve<float>(rank.device, 8);
              if (rank.rank == 1) fail_in_lane(rank);
              if (rank.rank != 1) rank.world.all_reduce(Lane::all_reduce, buffer, 8, DType::f32, 1.0F, nullptr);
              rank.device.synchronize();
            }),
            "rank 1, lane copy, op bad op: broken on purpose");
}

TEST_P(FailureConformance, InABodyWhileOthersAreInABarrier) {
  EXPECT_EQ(failure([](RankContext& rank) {
              if (rank.rank == 2) throw std::runtime_error("body of rank 2");
              rank.world.barrier();
            }),
            "body of rank 2");
}

TEST_P(FailureConformance, InABodyWhileOthersSplit) {
  EXPECT_EQ(failure([](RankContext& rank) {
              if (rank.rank == 0) throw std::runtime_error("body of rank 0");
              rank.world.split(0, 0);
            }),
            "body of rank 0");
}

TEST_P(FailureConformance, InABodyKeepsItsType) {
  BackendOptions options;
  options.ranks = kRanks;
  EXPECT_THROW(GetParam()()->run(options,
                                 [](RankContext& rank) {
                                   if (rank.rank == 1) throw Interrupted();
                                   rank.world.barrier();
                                 }),
               Interrupted);
}

TEST_P(FailureConformance, WhileOthersWaitForAnEvent) {
  EXPECT_EQ(failure([](RankContext& rank) {
              std::byte* buffer = reserve<float>(rank.device, 8);
              if (rank.rank == 0) {
                fail_in_lane(rank);
                rank.device.synchronize();
                return;
              }
              rank.world.all_reduce(Lane::all_reduce, buffer, 8, DType::f32, 1.0F, nullptr);
              rank.device.record(0, Lane::all_reduce);
              rank.device.wait(Lane::compute, 0);  // a lane waits
              rank.device.record(1, Lane::compute);
              rank.device.host_wait(1);  // and the host
            }),
            "rank 0, lane copy, op bad op: broken on purpose");
}

TEST_P(FailureConformance, WhileAnotherIsBlockedByAFullQueue) {
  EXPECT_EQ(failure([](RankContext& rank) {
              std::byte* buffer = reserve<float>(rank.device, 8);
              if (rank.rank == 0) {
                fail_in_lane(rank);
                rank.device.synchronize();
                return;
              }
              for (int i = 0; i < 100'000; ++i) {
                rank.world.all_reduce(Lane::all_reduce, buffer, 8, DType::f32, 1.0F, nullptr);
              }
            }),
            "rank 0, lane copy, op bad op: broken on purpose");
}

TEST_P(FailureConformance, OnAllRanksAtOnceGivesOneMessage) {
  EXPECT_THAT(failure([](RankContext& rank) {
                fail_in_lane(rank);
                rank.device.synchronize();
              }),
              testing::MatchesRegex("rank ., lane copy, op bad op: broken on purpose"));
}

TEST_P(FailureConformance, SoonerOrLaterSurfacesInLaterCalls) {
  EXPECT_EQ(failure([](RankContext& rank) {
              if (rank.rank == 0) fail_in_lane(rank);
              for (;;) delay(rank.device, Lane::compute, kMillisecond / 10);
            }),
            "rank 0, lane copy, op bad op: broken on purpose");
}

TEST_P(FailureConformance, ALateFailureAfterTheBodyReturnedIsNotLost) {
  EXPECT_EQ(failure([](RankContext& rank) {
              if (rank.rank == 2) fail_in_lane(rank);
            }),
            "rank 2, lane copy, op bad op: broken on purpose");
}

TEST_P(FailureConformance, ARankThatEndsEarlyIsAnErrorNotAHang) {
  EXPECT_THAT(failure([](RankContext& rank) {
                if (rank.rank != 1) rank.world.barrier();
              }),
              testing::HasSubstr("has ended"));
}

}  // namespace fsdpbench::backend
