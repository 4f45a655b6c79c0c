#include "account/gpu_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fsdpbench::account {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Ten steps of 100 ns each, those of `longer` 140 ns, numbered from 2; one sample in the middle of each.
struct Watched {
  explicit Watched(const std::vector<int>& longer, ClockLimits limits, std::int32_t mhz_then) {
    trace.rank = 0;
    trace.records.push_back({2, 0, 0, 0, 0, 0});
    health.limits.sm_mhz = 1980;
    health.limits.pcie_width = 16;
    std::int64_t now = 1000;
    for (int i = 0; i < 10; ++i) {
      const bool is_longer = std::ranges::find(longer, i) != longer.end();
      const std::int64_t length = is_longer ? 140 : 100;
      trace.steps.push_back({now, now + length, now});
      GpuSample sample;
      sample.time_ns = sample.until_ns = now + 50;
      sample.sm_mhz = is_longer ? mhz_then : 1755;
      sample.power_mw = 600'000 + i;
      sample.temperature_c = 60 + i;
      sample.limits = is_longer ? limits : 0;
      sample.pcie_width = 16;
      health.samples.push_back(sample);
      now += length;
    }
  }
  std::vector<Throttling> throttling() const { return find_throttling({health}, {trace}); }

  GpuHealth health;
  trace::RankTrace trace;
};

TEST(GpuSteps, AStepHasTheSamplesTakenInIt) {
  GpuHealth health;
  for (const std::int64_t time : {5, 10, 15, 19, 20, 35}) {
    GpuSample sample;
    sample.time_ns = sample.until_ns = time;
    sample.sm_mhz = static_cast<std::int32_t>(1000 + time);
    if (time != 35) sample.limits = time == 15 ? bit(ClockLimit::power_cap) : 0;
    sample.pcie_width = time == 15 ? 8 : 16;
    sample.pcie_generation = time == 10 ? 3 : 5;
    if (time < 20) sample.power_mw = static_cast<std::int32_t>(1000 * time);
    if (time == 10 || time == 15) sample.temperature_c = time == 10 ? -7 : -9;
    health.samples.push_back(sample);
  }
  health.samples.back().until_ns = 45;  // stands for some up to there
  const std::vector<GpuStep> steps =
      gpu_steps(health, {{10, 20, 0}, {20, 30, 0}, {30, 40, 0}, {40, 50, 0}, {50, 60, 0}});
  ASSERT_THAT(steps, SizeIs(5));
  EXPECT_EQ(steps[0].samples, 3);
  EXPECT_EQ(steps[0].sm_mhz, 1015);
  EXPECT_EQ(steps[0].limits, bit(ClockLimit::power_cap));
  EXPECT_EQ(steps[0].power_mw, 15'000);
  EXPECT_EQ(steps[0].temperature_c, -7);
  EXPECT_FALSE(steps[1].temperature_c || steps[1].power_mw);
  EXPECT_EQ(steps[0].pcie_width, 8);
  EXPECT_EQ(steps[0].pcie_generation, 3);
  EXPECT_EQ(steps[1].samples, 1);
  EXPECT_EQ(steps[1].limits, 0u);
  EXPECT_EQ(steps[2].limits, 0u);
  EXPECT_EQ(steps[2].sm_mhz, 1035);
  EXPECT_EQ(steps[3].sm_mhz, 1035);
  EXPECT_EQ(steps[4].samples, 0);
  EXPECT_FALSE(steps[4].sm_mhz.has_value());
}

TEST(Throttling, StepsSlowedByItAreNamed) {
  const Watched watched({3, 4, 7}, bit(ClockLimit::hardware_thermal) | bit(ClockLimit::idle), 990);
  const std::vector<Throttling> found = watched.throttling();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].steps, ElementsAre(5, 6, 9));
  EXPECT_EQ(found[0].seen, 10);
  EXPECT_EQ(found[0].sm_mhz, 990);
  EXPECT_EQ(found[0].other_sm_mhz, 1755);
  ASSERT_TRUE(found[0].longer_pct.has_value());
  EXPECT_NEAR(*found[0].longer_pct, 40, 1e-9);
  EXPECT_EQ(
      to_string(found[0]),
      "the GPU of rank 0 throttled (hardware thermal slowdown) in 3 of 10 steps (5, 6, 9): 990 MHz there, 1755 MHz "
      "in the others, of at most 1980; they took 40 % longer");
}

TEST(Throttling, InAllStepsThereAreNoOthersToCompareWith) {
  const Watched watched({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, bit(ClockLimit::power_brake), 345);
  const std::vector<Throttling> found = watched.throttling();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_FALSE(found[0].longer_pct.has_value());
  EXPECT_EQ(to_string(found[0]),
            "the GPU of rank 0 throttled (power brake) in 10 of 10 steps: 345 MHz, of at most 1980");
}

TEST(Throttling, ThreeOtherStepsAreEnoughToCompareWith) {
  const ClockLimits brake = bit(ClockLimit::power_brake);
  const std::vector<Throttling> three = Watched({0, 1, 2, 3, 4, 5, 6}, brake, 345).throttling();
  ASSERT_TRUE(three.front().longer_pct.has_value());
  EXPECT_NEAR(*three.front().longer_pct, 40, 1e-9);
  EXPECT_FALSE(Watched({0, 1, 2, 3, 4, 5, 6, 7}, brake, 345).throttling().front().longer_pct.has_value());
}

TEST(Throttling, APowerCapIsToldOnlyWhereStepsAreLongerForIt) {
  const std::vector<Throttling> found = Watched({3, 4, 7}, bit(ClockLimit::power_cap), 1500).throttling();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(to_string(found[0]),
              ::testing::StartsWith("the GPU of rank 0 was held down (power cap) in 3 of 10 steps"));
  EXPECT_THAT(Watched({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, bit(ClockLimit::power_cap), 1500).throttling(), IsEmpty());
  Watched equal({}, 0, 0);
  for (std::size_t i : {2U, 3U, 4U}) equal.health.samples[i].limits = bit(ClockLimit::power_cap);
  EXPECT_THAT(equal.throttling(), IsEmpty());
}

TEST(Throttling, IdleAndChosenClocksAreNone) {
  EXPECT_THAT(Watched({3, 4, 7}, bit(ClockLimit::idle) | bit(ClockLimit::application_clocks), 990).throttling(),
              IsEmpty());
}

TEST(Throttling, RanksWithoutAGpuAreSkipped) {
  const Watched watched({3}, bit(ClockLimit::software_thermal), 990);
  trace::RankTrace other = watched.trace;
  other.rank = 1;
  EXPECT_THAT(find_throttling({std::nullopt, std::nullopt}, {watched.trace, other}), IsEmpty());
  const std::vector<Throttling> found = find_throttling({std::nullopt, watched.health}, {watched.trace, other});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].rank, 1);
}

TEST(GpuCaveats, AHealthyGpuHasNone) {
  const Watched watched({}, 0, 0);
  EXPECT_THAT(gpu_complaints(watched.health), IsEmpty());
  GpuHealth unknown;
  unknown.unknown_because = "There is no library.";
  EXPECT_THAT(gpu_complaints(unknown), IsEmpty());
}

TEST(GpuCaveats, ErrorsComeBeforeThrottling) {
  Watched watched({3, 4, 7}, bit(ClockLimit::hardware_thermal), 990);
  watched.health.xids = {{1, 79}, {2, 79}, {3, 1234}};
  watched.health.errors.ecc_uncorrected = 2;
  watched.health.errors.ecc_corrected = 9;
  watched.health.errors.nvlink_replays = 12;
  watched.health.errors.nvlink_crc = 0;
  watched.health.samples[5].pcie_width = 8;
  EXPECT_THAT(
      gpu_caveats({watched.health}, watched.throttling()),
      ElementsAre("the GPU of rank 0 reported Xid 79 (the GPU has fallen off the bus) 2 times",
                  "the GPU of rank 0 reported Xid 1234", "the GPU of rank 0 counted 2 uncorrected memory errors (ECC)",
                  "the GPU of rank 0 counted 12 replays on NVLinks",
                  "the GPU of rank 0 has a PCIe link of 8 lanes where 16 are possible",
                  HasSubstr("throttled: the GPU of rank 0 throttled (hardware thermal slowdown)")));
}

TEST(GpuCaveats, OneErrorIsTold) {
  Watched watched({}, 0, 0);
  watched.health.errors.ecc_uncorrected = watched.health.errors.nvlink_recoveries =
      watched.health.errors.nvlink_replays = watched.health.errors.nvlink_crc = 1;
  watched.health.xids = {{1, 79}};
  EXPECT_THAT(gpu_complaints(watched.health), SizeIs(5));
}

TEST(GpuCaveats, ClocksThatDiffer) {
  EXPECT_THAT(clock_caveats({1}), SizeIs(1));
  EXPECT_THAT(clock_caveats({}), IsEmpty());
  EXPECT_THAT(clock_caveats({0, 0}), IsEmpty());
  EXPECT_THAT(clock_caveats({0, 8600, 200}), ElementsAre(HasSubstr("up to 8.6 us before they were issued (rank 1)")));
}

TEST(GpuCaveats, AGpuThatWasLostOnTheWay) {
  Watched watched({}, 0, 0);
  watched.health.unknown_because = "The GPU is lost: the driver has had no answer from it since.";
  EXPECT_THAT(gpu_complaints(watched.health), ElementsAre(HasSubstr("is lost")));
}

/// Few steps among others are listed, from 0 where no record says otherwise.
TEST(Throttling, UpToEightStepsAreListedUnlessTheyAreAll) {
  const auto said = [](const std::vector<int>& longer, std::size_t steps = 10) {
    Watched watched(longer, bit(ClockLimit::power_brake), 345);
    watched.trace.records.clear();
    watched.trace.steps.resize(steps);
    return to_string(watched.throttling().front());
  };
  EXPECT_THAT(said({0, 1, 2, 3, 4, 5, 6, 7}), HasSubstr("in 8 of 10 steps (0, 1, 2, 3, 4, 5, 6, 7): "));
  EXPECT_THAT(said({0, 1, 2, 3, 4, 5, 6, 7, 8}), HasSubstr("in 9 of 10 steps: "));
  EXPECT_THAT(said({0, 1, 2, 3, 4}, 5), HasSubstr("in 5 of 5 steps: "));
}

}  // namespace
}  // namespace fsdpbench::account
