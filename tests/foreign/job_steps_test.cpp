#include "foreign/job_steps.h"

#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kStep_ns = 100;

/// Steps of 100 ns with a row from 10 to 40 and one from 50 to 90 each, launched as they begin.
RankRows rows_of(std::int64_t steps) {
  RankRows rank;
  rank.names = {"kernel", "enumerate(DataLoader)#next"};
  rank.streams.resize(1);
  for (std::int64_t s = 0; s < steps; ++s) {
    const std::int64_t begin = s * kStep_ns;
    rank.device.push_back({begin + 10, begin + 40});
    rank.device.push_back({begin + 50, begin + 90});
    rank.host.push_back({begin, begin + 5, 0, 1});
    rank.steps.push_back({s, begin, begin + kStep_ns});
  }
  return rank;
}

TEST(JobSteps, EachHasTheRowsThatRunInItsWindow) {
  RankRows rank = rows_of(3);
  rank.device.insert(rank.device.begin(), {-50, 120});  // before the first step, and into the second
  const JobSteps cut = cut_steps(rank);
  ASSERT_EQ(cut.steps.size(), 3U);
  EXPECT_THAT(cut.steps[0].running, testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(cut.steps[1].running, testing::ElementsAre(0, 3, 4));
  EXPECT_THAT(cut.steps[2].running, testing::ElementsAre(5, 6));
  EXPECT_EQ(cut.loads.size(), 3U);
}

/// Twice the steps, twice the work.
TEST(JobSteps, TheWorkGrowsWithRowsAndStepsAndNotWithTheirProduct) {
  for (const std::int64_t steps : {1000, 2000, 4000}) {
    const RankRows rank = rows_of(steps);
    EXPECT_LE(cut_steps(rank).looked_at, 3 * rank.device.size()) << steps;
  }
}

/// Marks that reach into each other: each step would be all that comes after it, and all of it would be looked at in
/// every step.
TEST(JobSteps, MarksInEachOtherAreNoWindows) {
  RankRows rank = rows_of(1000);
  for (StepMark& mark : rank.steps) mark.end_ns = 1000 * kStep_ns + (1000 - mark.number);
  const JobSteps cut = cut_steps(rank);
  ASSERT_EQ(cut.steps.size(), 1000U);
  for (std::size_t s = 0; s + 1 < cut.steps.size(); ++s) {
    EXPECT_LE(cut.steps[s].window.end, cut.steps[s + 1].window.begin);
    EXPECT_EQ(cut.steps[s].running.size(), 2U);
  }
  EXPECT_LE(cut.looked_at, 3 * rank.device.size());
}

}  // namespace
}  // namespace fsdpbench::foreign
