#include "account/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace fsdpbench::account {
namespace {

using Figures = std::vector<std::pair<double, double>>;

TEST(KendallTau, CountsPairsInTheSameOrderAndInAnother) {
  EXPECT_EQ(kendall_tau(Figures{{1, 10}, {2, 20}, {3, 30}}), 1);
  EXPECT_EQ(kendall_tau(Figures{{1, 30}, {2, 20}, {3, 10}}), -1);
  // Of six pairs five agree.
  EXPECT_DOUBLE_EQ(*kendall_tau(Figures{{1, 10}, {2, 30}, {3, 20}, {4, 40}}), 4.0 / 6);
}

TEST(KendallTau, OfTiesHoldsThoseOfOneFigureAgainstIt) {
  // One pair of three is tied in the first figure: 2 of sqrt(2 x 3).
  EXPECT_DOUBLE_EQ(*kendall_tau(Figures{{1, 10}, {1, 20}, {2, 30}}), 2 / std::sqrt(6.0));
  EXPECT_EQ(kendall_tau(Figures{{1, 10}, {1, 10}, {2, 30}}), 1);
}

TEST(KendallTau, IsAbsentWhereNothingIsOrdered) {
  EXPECT_FALSE(kendall_tau(Figures{}));
  EXPECT_FALSE(kendall_tau(Figures{{1, 10}}));
  EXPECT_FALSE(kendall_tau(Figures{{1, 10}, {1, 20}}));
}

/// Of 17 values five of which are the least, resampled medians are that with a chance of 3.6 %: within the 95 %
/// interval, and outside one of 90 %.
TEST(Summarize, TheIntervalIsOneOfNinetyFivePercent) {
  std::vector<double> values(17, 2.0);
  for (std::size_t i = 0; i < 5; ++i) values[i] = 1;
  EXPECT_EQ(summarize(values).ci_low, 1);
  EXPECT_EQ(summarize(values).ci_high, 2);
  for (double& value : values) value = 3 - value;
  EXPECT_EQ(summarize(values).ci_high, 2);
  // Four of 17: 0.8 %, which an interval of 99 % would hold.
  std::vector<double> rarer(17, 2.0);
  for (std::size_t i = 0; i < 4; ++i) rarer[i] = 1;
  EXPECT_EQ(summarize(rarer).ci_low, 2);
}

/// Of eight values three of which are twice as large, all three are in the first half with a chance of 7.1 %: then it
/// differs by 100 %, and else by no more than 50 %.
TEST(AaNoise, IsTheNinetyFifthPercentileOfHowHalvesDiffer) {
  EXPECT_DOUBLE_EQ(*aa_noise({1, 1, 1, 1, 1, 2, 2, 2}), 1);
  EXPECT_EQ(aa_noise(std::vector<double>(10, 3.0)), 0.0);
}

TEST(AaNoise, TooFewValuesSayNothing) { EXPECT_FALSE(aa_noise({1, 2, 3})); }

}  // namespace
}  // namespace fsdpbench::account
