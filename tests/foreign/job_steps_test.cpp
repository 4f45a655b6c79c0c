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

/// Three launches a step, of which the last is a collective's; `lost` of the last step's have no row.
RankRows launched_rows(std::int64_t steps, std::int64_t lost) {
  RankRows rank = rows_of(0);
  for (std::int64_t launch = 0; launch < 3 * steps; ++launch) {
    const std::int64_t begin = launch * kStep_ns / 3;
    HostRow& call = rank.host.emplace_back();
    call = {.begin_ns = begin, .end_ns = begin + 2, .kind = HostWork::launch};
    if (launch % 3 == 0) rank.steps.push_back({launch / 3, begin, begin + kStep_ns});
    if (launch >= 3 * steps - lost) continue;
    DeviceRow& row = rank.device.emplace_back();
    row = {.begin_ns = begin + 500, .end_ns = begin + 520, .launch = static_cast<std::int32_t>(launch)};
    if (launch % 3 == 2) row.kind = Activity::collective;
  }
  return rank;
}

TEST(JobSteps, ALastStepThatTheRecordingCutsOffIsLeftOut) {
  const JobSteps whole = cut_steps(launched_rows(4, 0)), cut = cut_steps(launched_rows(4, 2));
  EXPECT_EQ(whole.steps.size(), 4U);
  EXPECT_EQ(whole.left_out, 0U);
  EXPECT_EQ(cut.steps.size(), 3U);
  EXPECT_EQ(cut.left_out, 1U);
  EXPECT_EQ(cut_steps(launched_rows(2, 2)).steps.size(), 2U);  // nothing to compare with
  RankRows kernels_alone = launched_rows(4, 2);
  for (DeviceRow& row : kernels_alone.device) row.kind = Activity::computation;
  EXPECT_EQ(cut_steps(kernels_alone).steps.size(), 4U);
}

TEST(JobSteps, ARowWithoutALaunchIsEarlierThanTheFileOrLikeTheRowBefore) {
  RankRows rank = launched_rows(4, 0);
  rank.device[0].launch = rank.device[5].launch = -1;
  const JobSteps cut = cut_steps(rank);
  EXPECT_EQ(cut.before_recording, 1U);
  EXPECT_EQ(cut.launch_assumed, 1U);
  EXPECT_EQ(cut_steps(rows_of(3)).launch_assumed, 0U) << "no row of the file has one";
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

/// A gather, a product, a reduction and the optimizer a step, of which the recording has the second half of the first.
/// Its launches are not in the file, and the host's marks are of other rows.
TEST(JobSteps, WithoutLaunchesAStepIsWhatRepeatsOnTheDevice) {
  RankRows rank;
  rank.names = {"ncclDevKernel", "gemm", "multi_tensor_apply_kernel<FusedAdam>"};
  rank.streams.resize(1);
  rank.collectives.resize(2);
  rank.collectives[1].kind = Communication::reduce_scatter;
  for (std::int64_t row = 2; row < 16; ++row) {
    DeviceRow& device = rank.device.emplace_back();
    device = {.begin_ns = row * kStep_ns, .end_ns = row * kStep_ns + 50};
    if (row % 2 == 0) {
      device.kind = Activity::collective;
      device.collective = row % 4 == 0 ? 0 : 1;
    } else {
      device.name = row % 4 == 1 ? 1 : 2;
    }
  }
  rank.steps = {{0, 0, 900}, {1, 900, 1300}, {2, 1300, 2000}};
  const JobSteps cut = cut_steps(rank);
  EXPECT_EQ(cut.source, StepSource::period);
  EXPECT_EQ(cut.sureness(), 0.8);
  ASSERT_EQ(cut.steps.size(), 3U);
  EXPECT_EQ(cut.left_out, 2U);
  for (const JobStep& step : cut.steps) EXPECT_EQ(step.device.size(), 4U);
  EXPECT_EQ(cut.steps[1].window.end - cut.steps[1].window.begin, 4 * kStep_ns);
  for (DeviceRow& row : rank.device) row.collective = -1;  // nothing repeats: the marks are all there is
  EXPECT_EQ(cut_steps(rank).source, StepSource::profiler);
  EXPECT_EQ(cut_steps(rank).sureness(), 0.5);
}

}  // namespace
}  // namespace fsdpbench::foreign
