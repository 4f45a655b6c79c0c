#include "launch/clock_offset.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "launch/local_job.h"

namespace fsdpbench::launch {
namespace {

using testing::run_job;

TEST(ClockOffset, TheQuickestRoundCounts) {
  // The rank's clock is 1000 behind rank 0's: at rank 0's 5010 it says 4010.
  const std::vector<ClockRound> rounds{{100, 50, 500}, {5000, 4010, 5020}, {6000, 5300, 6900}};
  const ClockOffset offset = estimate_offset(rounds);
  EXPECT_EQ(offset.offset_ns, 1000);
  EXPECT_EQ(offset.residual_ns, 10);
  EXPECT_EQ(offset.at_ns, 5010);
  EXPECT_FALSE(offset.same_clock);
}

TEST(ClockOffset, AnOddTripIsCoveredByItsResidual) {
  // The other's time was read at the very beginning or the very end of a trip of 5.
  for (const std::int64_t told : {0, 5}) {
    const ClockOffset offset = estimate_offset(std::vector<ClockRound>{{0, told, 5}});
    EXPECT_LE(std::abs(offset.offset_ns), offset.residual_ns);
    EXPECT_EQ(offset.residual_ns, 3);
  }
}

TEST(ClockOffset, TheTruthIsWithinTheResidualHoweverUnevenTheWay) {
  std::mt19937 random(1);
  std::uniform_int_distribution<std::int64_t> delay(1'000, 200'000);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t truth = delay(random) * 1'000'000 - 100'000'000'000;
    std::vector<ClockRound> rounds;
    for (std::int64_t now = 0; now < 10'000'000; now += 1'000'000) {
      const std::int64_t there = delay(random);
      const std::int64_t back = delay(random);
      rounds.push_back({now, now + there - truth, now + there + back});
    }
    const ClockOffset offset = estimate_offset(rounds);
    EXPECT_LE(std::abs(offset.offset_ns - truth), offset.residual_ns);
  }
}

/// A clock that is `offset` behind rank 0's at rank 0's time 0, and slower by `drift`.
struct Clock {
  double offset;
  double drift;
  std::int64_t at(std::int64_t root_ns) const {
    return static_cast<std::int64_t>((static_cast<double>(root_ns) - offset) / (1 + drift));
  }
  ClockOffset measured(std::int64_t root_ns, std::int64_t error, std::int64_t residual) const {
    return {root_ns - at(root_ns) + error, residual, root_ns, false};
  }
};

TEST(ClockCorrection, TwoMeasurementsGiveTheDrift) {
  const Clock clock{5e9, 20e-6};
  constexpr std::int64_t kSecond = 1'000'000'000;
  const ClockCorrection correction(clock.measured(0, 0, 40), clock.measured(100 * kSecond, 0, 60));
  EXPECT_NEAR(correction.drift(), 20e-6, 1e-10);  // clocks tick in whole ns
  EXPECT_EQ(correction.residual_ns(), 60);
  for (std::int64_t root = 0; root <= 100 * kSecond; root += 7 * kSecond) {
    EXPECT_NEAR(static_cast<double>(correction.to_root(clock.at(root))), static_cast<double>(root), 3);
  }
}

TEST(ClockCorrection, ErrorsOfMeasuringStayWithinTheResidual) {
  const Clock clock{-3e8, -50e-6};
  constexpr std::int64_t kSecond = 1'000'000'000;
  for (const std::int64_t first : {-50, 0, 50}) {
    for (const std::int64_t second : {-80, 0, 80}) {
      const ClockCorrection correction(clock.measured(kSecond, first, 50), clock.measured(2 * kSecond, second, 80));
      for (std::int64_t root = kSecond; root <= 2 * kSecond; root += kSecond / 10) {
        EXPECT_LE(std::abs(correction.to_root(clock.at(root)) - root), correction.residual_ns() + 3);
      }
    }
  }
}

TEST(ClockCorrection, OutsideTheRunTheOffsetStays) {
  const ClockCorrection correction({1000, 1, 2000, false}, {1100, 1, 12'100, false});
  EXPECT_DOUBLE_EQ(correction.drift(), 0.01);
  EXPECT_EQ(correction.to_root(1000), 2000);
  EXPECT_EQ(correction.to_root(0), 1000);
  EXPECT_EQ(correction.to_root(6000), 7050);
  EXPECT_EQ(correction.to_root(11'000), 12'100);
  EXPECT_EQ(correction.to_root(100'000), 101'100);
}

TEST(ClockCorrection, OneMeasurementOrTheSameClock) {
  const ClockCorrection once(ClockOffset{-7, 3, 100, false});
  EXPECT_EQ(once.to_root(1'000'000), 999'993);
  EXPECT_EQ(once.drift(), 0);
  EXPECT_EQ(once.residual_ns(), 3);
  EXPECT_FALSE(once.same_clock());
  const ClockCorrection same({0, 0, 100, true}, {0, 0, 200, true});
  EXPECT_EQ(same.to_root(150), 150);
  EXPECT_EQ(same.residual_ns(), 0);
  EXPECT_TRUE(same.same_clock());
}

TEST(ClockOffset, ProcessesOfOneHostShareAClock) {
  run_job(3, [](Session& session, int rank) {
    const std::vector<ClockOffset> offsets = measure_clock_offsets(session.control());
    ASSERT_EQ(offsets.size(), rank == 0 ? 3U : 0U);
    for (const ClockOffset& offset : offsets) {
      EXPECT_TRUE(offset.same_clock);
      EXPECT_EQ(offset.offset_ns, 0);
      EXPECT_EQ(offset.residual_ns, 0);
      EXPECT_GT(offset.at_ns, 0);
    }
  });
}

TEST(ClockOffset, OtherClocksAreMeasured) {
  run_job(3, [](Session& session, int rank) {
    // One clock in truth, but that is not known: an unknown identity is never the same.
    const std::string identity = rank == 2 ? "another" : "";
    const std::vector<ClockOffset> offsets = measure_clock_offsets(session.control(), 20, identity);
    for (std::size_t r = 1; r < offsets.size(); ++r) {
      EXPECT_FALSE(offsets[r].same_clock);
      EXPECT_GT(offsets[r].residual_ns, 0);
      EXPECT_LE(std::abs(offsets[r].offset_ns), offsets[r].residual_ns);
    }
  });
}

}  // namespace
}  // namespace fsdpbench::launch
