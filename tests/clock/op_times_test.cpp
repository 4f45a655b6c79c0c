// Jitter, delays, and the numbers of a forecast, by hand.
#include "clock/op_times.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "clock/forecast.h"

namespace fsdpbench::clock {
namespace {

using Values = std::vector<double>;

/// The random number of an op on a rank, from which its factor and its pause follow.
std::uint64_t random_of(std::uint64_t seed, std::int64_t step, std::size_t op, std::size_t rank) {
  return of_rank(op_key(mixed(seed + 0x9e3779b97f4a7c15ULL), step, op), rank);
}

TEST(OpTimes, AResidualIsDrawnByTheUpperBitsAndAPauseByTheLower) {
  constexpr std::size_t kRanks = 64, kFirst = 7;
  Values numbered;
  for (int i = 4095; i >= 0; --i) numbered.push_back(1 + i);
  Values expected, drawn(kRanks, 2.0);
  for (std::size_t k = 0; k < kRanks; ++k) {
    expected.push_back(2.0 * (1 + static_cast<double>(random_of(3, 4, 5, kFirst + k) >> 52)));
  }
  const Jitter jitter(3, {numbered});
  jitter.apply(4, 5, kFirst, false, drawn, 6);  // the only distribution stands for any
  EXPECT_EQ(drawn, expected) << "the greater the number, the greater the factor";
  const double chance = static_cast<double>(random_of(3, 4, 5, 0) & 0xffffffffULL) * 0x1p-32;
  for (const bool pauses : {false, true}) {
    for (const auto& [more, paused] : {std::pair{0.0, 0.0}, {0x1p-32, 1000.0}}) {
      Values one{10};
      Jitter(3, {{2}}, chance + more, 1000).apply(4, 5, 0, pauses, one);
      EXPECT_EQ(one.front(), 20 + (pauses ? paused : 0));
    }
  }
  Values untouched{0.4};
  Jitter().apply(0, 0, 0, true, untouched);
  EXPECT_EQ(untouched, Values{0.4});
}

TEST(OpTimes, EachDistributionHasItsOwnResiduals) {
  const Jitter jitter(1, {{1}, {2}, {4}});
  for (int distribution = 0; distribution < 3; ++distribution) {
    Values drawn(100'000, 1.0);
    jitter.apply(0, 0, 0, false, drawn, distribution);
    EXPECT_EQ(drawn, Values(100'000, 1 << distribution));
  }
  Values whole{3, 5};
  Jitter(1, {{0.5}}).apply(0, 0, 0, false, whole);
  EXPECT_EQ(whole, (Values{2, 2})) << "whole nanoseconds, halves to the even one";
}

TEST(OpTimes, LognormalResidualsAreItsQuantilesInTheMiddleOfEqualParts) {
  constexpr double kQuartile = 0.6744897501960817;  // of the normal distribution
  const Values two = Jitter::lognormal(0.5, 2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_NEAR(two[0], std::exp(-0.5 * kQuartile), 1e-6);
  EXPECT_NEAR(two[1], std::exp(0.5 * kQuartile), 1e-6);
  EXPECT_NEAR(Jitter::lognormal(3, 1).at(0), 1, 1e-6);
}

TEST(OpTimes, DelaysAddUp) {
  Delays delays;
  delays.fixed_ns[index_of(Lane::compute)] = 50;
  const auto added = [&](Lane lane, std::size_t first) {
    Values begin{100, 200, 300};
    delays.add(7, 8, lane, first, begin);
    return begin;
  };
  EXPECT_EQ(added(Lane::compute, 4), (Values{150, 250, 350}));
  EXPECT_EQ(added(Lane::copy, 4), (Values{100, 200, 300}));
  delays.rank = 5;
  EXPECT_EQ(added(Lane::compute, 4), (Values{100, 250, 300}));
  EXPECT_EQ(added(Lane::compute, 0), (Values{100, 200, 300}));
  delays.rank = 0;
  EXPECT_EQ(added(Lane::compute, 0), (Values{150, 200, 300}));
  delays.by_rank_ns.resize(4);
  for (std::size_t rank = 0; rank < 4; ++rank)
    delays.by_rank_ns[rank][index_of(Lane::copy)] = static_cast<double>(rank);
  EXPECT_EQ(added(Lane::copy, 1), (Values{101, 202, 303}));
}

/// 0 to uniform_ns, each as likely as another, by a number of their own: the luck of jitter is another one.
TEST(OpTimes, UniformDelaysAreThoseOfTheirSeed) {
  for (const double most : {0.0, 1.0, 6.0}) {
    Delays delays;
    delays.uniform_ns = most;
    delays.seed = 11;
    Values begin(1000), expected;
    delays.add(7, 8, Lane::copy, 3, begin);
    std::vector<int> times(static_cast<std::size_t>(most) + 1);
    for (std::size_t k = 0; k < begin.size(); ++k) {
      const std::uint64_t upper = of_rank(op_key(mixed(12), 7, 8), 3 + k) >> 32;
      expected.push_back(std::floor(static_cast<double>(upper) * 0x1p-32 * (most + 1)));
      ++times.at(static_cast<std::size_t>(begin[k]));
    }
    EXPECT_EQ(begin, expected);
    for (const int count : times) EXPECT_NEAR(count, 1000 / (most + 1), 60);
  }
}

TEST(OpTimes, AStepIsTooLongWhereADoubleLosesNanoseconds) {
  const double half = 0x1p52, all = 0x1p53;
  const auto is = [](std::vector<StepCosts> steps, Values compute = {}, Values link = {}) {
    OpTimes times;
    times.steps = std::move(steps);
    times.compute_factor = std::move(compute);
    times.link_factor = std::move(link);
    return too_long(times);
  };
  EXPECT_FALSE(is({}));
  EXPECT_FALSE(is({{{half, half}}}));
  EXPECT_FALSE(is({{{half}, {half}}, {{all}}}));
  EXPECT_TRUE(is({{{half, half + 2}}}));
  EXPECT_TRUE(is({{{1}}, {{half}, {half}, {2}}}));
  EXPECT_TRUE(is({{{half}}}, {1, 2.5, 1}));
  EXPECT_FALSE(is({{{half}}}, {}, {1, 2.5, 1})) << "no transfer";
  EXPECT_TRUE(is({{{0, half}}}, {}, {1, 2.5, 1}));
  EXPECT_FALSE(is({{{all - 1}, {0, 1}}}, {}, {1.5})) << "2^53, rounded once";
  EXPECT_TRUE(is({{{std::numeric_limits<double>::quiet_NaN()}}}));
}

TEST(Forecast, NamesOfReach) {
  EXPECT_EQ(to_string(Reach::measured), "measured");
  EXPECT_EQ(to_string(Reach::interpolated), "interpolated");
  EXPECT_EQ(to_string(Reach::extrapolated), "extrapolated");
}

TEST(Forecast, QuantilesOfTheNextValue) {
  // Values of rank p (n + 1), straight in logarithms, and never beyond the first and the last.
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 2, 16}, 3, 0.625), std::sqrt(32.0));
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 4, 16, 64}, 4, 0.5), 8);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 4}, 2, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 2, 4}, 1, 0.9), 4);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 2, 4}, 1, 0.1), 1);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 1, 1, 1000}, 1, 0.6), 1) << "one source has no scatter";
  // From the first source to the last, both included, no scatter is asked.
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 1.1, 1000}, 3, 0.25), 1);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 900, 1000}, 3, 0.75), 1000);
  // Two sources: Student's t of one degree of freedom exceeds 1 with probability 1/4. The logarithms of 1 and 4 scatter
  // by ln 2 sqrt(2) around ln 2, the next of such values sqrt(3/2) times as much.
  EXPECT_NEAR(quantile_of_next({1, 4}, 2, 0.75), std::exp2(1 + std::sqrt(3.0)), 1e-6);
  EXPECT_NEAR(quantile_of_next({1, 4}, 2, 0.25), std::exp2(1 - std::sqrt(3.0)), 1e-6);
  // Where values are in two heaps, the ranked one is further out.
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 1, 1000, 1000}, 2, 0.68), 1000);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 1, 1000, 1000}, 2, 0.32), 1);
}

TEST(Forecast, ADrawNeverMakesTheHostFasterThanNothing) {
  OpTimes times;
  times.steps = {{{100, 10}, {100, 10}}, {{100, 10}, {100, 10}}};
  times.host = {.issue_ns = 5, .launch_ns = 6, .gap_ns = 7, .wake_ns = 8, .step_ns = 9, .start_ns = 10};
  Uncertainty uncertainty;
  uncertainty.source = {{-1, -1}, {0, -1}};
  uncertainty.ratios = {{1, 1.026}};
  EXPECT_EQ(drawn(times, uncertainty, 1).host.issue_ns, 5);
  uncertainty.host = {{}, {.issue_ns = -5.4, .launch_ns = -6, .gap_ns = -8, .wake_ns = 1.3, .step_ns = 1}};
  const OpTimes one = drawn(times, uncertainty, 1);
  const std::array<double, 6> host{one.host.issue_ns, one.host.launch_ns, one.host.gap_ns,
                                   one.host.wake_ns,  one.host.step_ns,   one.host.start_ns};
  EXPECT_EQ(host, (std::array<double, 6>{0, 0, 0, 9, 9, 10}));
  Values run, link;
  for (const StepCosts& costs : one.steps) {
    for (const OpCost& cost : costs) run.push_back(cost.run_ns), link.push_back(cost.link_ns);
  }
  EXPECT_EQ(run, (Values{100, 100, 103, 100}));
  EXPECT_EQ(link, (Values{10, 10, 10, 10}));
}

}  // namespace
}  // namespace fsdpbench::clock
