#include "runs/trace_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;

/// Trial of ten ranks: rank 6 is the slowest, and others waited for rank 8.
Trial ten_ranks() {
  Trial trial = fsdpbench::testing::made_up_trial({1, 2, 3});
  trial.measurement.traces.resize(10);
  trial.metrics->ranks.resize(10);
  for (int rank = 0; rank < 10; ++rank) {
    trial.measurement.traces[static_cast<std::size_t>(rank)].rank = rank;
    trial.metrics->ranks[static_cast<std::size_t>(rank)].rank = rank;
    trial.metrics->ranks[static_cast<std::size_t>(rank)].step_ms.median = 1;
  }
  trial.metrics->ranks[6].step_ms.median = 2;
  trial.causes->causes.front().late_rank = 8;
  return trial;
}

TEST(ShownRanks, TheFirstTheSlowestAndTheOneToBlameComeFirst) {
  EXPECT_THAT(shown_ranks(ten_ranks(), 1), ElementsAre(0));
  EXPECT_THAT(shown_ranks(ten_ranks(), 2), ElementsAre(0, 6));
  EXPECT_THAT(shown_ranks(ten_ranks(), 3), ElementsAre(0, 6, 8));
  EXPECT_THAT(shown_ranks(ten_ranks(), 5), ElementsAre(0, 1, 2, 6, 8));
}

TEST(ShownRanks, AllIfThereAreNoMoreOrNoLimit) {
  EXPECT_EQ(shown_ranks(ten_ranks(), 0).size(), 10U);
  EXPECT_EQ(shown_ranks(ten_ranks(), 10).size(), 10U);
  EXPECT_EQ(shown_ranks(ten_ranks(), 99).size(), 10U);
}

TEST(ShownRanks, NeedsNoMetrics) {
  Trial trial = ten_ranks();
  trial.metrics.reset();
  trial.causes.reset();
  EXPECT_THAT(shown_ranks(trial, 3), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace fsdpbench::app
