#include "account/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdpbench::account {
namespace {

using Figures = std::vector<std::pair<double, double>>;

TEST(KendallTau, CountsPairsInTheSameOrderAndInAnother) {
  EXPECT_EQ(kendall_tau(Figures{{1, 10}, {2, 20}, {3, 30}}), 1);
  EXPECT_EQ(kendall_tau(Figures{{1, 30}, {2, 20}, {3, 10}}), -1);
  // Five of six pairs agree.
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

/// Resampled medians of 17 values, five of which are the least, are that with a chance of 3.6 %: within the 95 %
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

/// Resamples drawn as there, sorted: the 51st of 2000 from below and from above.
TEST(Summarize, LeavesOutFiftyOfTwoThousandMediansAtEitherEnd) {
  for (const std::size_t n : {30U, 100U, 130U}) {
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(std::exp2(static_cast<double>(i) / 2));
    std::mt19937 random(12345);
    std::uniform_int_distribution<std::size_t> index(0, n - 1);
    std::vector<double> medians;
    for (int i = 0; i < 2000; ++i) {
      std::vector<double> sample;
      while (sample.size() < n) sample.push_back(values[index(random)]);
      std::ranges::sort(sample);
      medians.push_back((sample[n / 2 - 1] + sample[n / 2]) / 2);
    }
    std::ranges::sort(medians);
    EXPECT_EQ(summarize(values).ci_low, medians[50]);
    EXPECT_EQ(summarize(values).ci_high, medians[1949]);
  }
}

/// All three of eight values that are twice as large are in the first half with a chance of 7.1 %: then it
/// differs by 100 %, and else by no more than 50 %.
TEST(AaNoise, IsTheNinetyFifthPercentileOfHowHalvesDiffer) {
  EXPECT_DOUBLE_EQ(*aa_noise({1, 1, 1, 1, 1, 2, 2, 2}), 1);
  EXPECT_EQ(aa_noise(std::vector<double>(10, 3.0)), 0.0);
}

TEST(AaNoise, TooFewValuesSayNothing) { EXPECT_FALSE(aa_noise({1, 2, 3})); }

/// The first half of four values has both larger ones with a chance of a sixth.
TEST(AaNoise, OfFourValuesIsThatOfTheirPairs) { EXPECT_DOUBLE_EQ(*aa_noise({1, 2, 2, 1}), 1); }

/// All orders must come about: of five values the halves are two and three, and each of them may be the first.
TEST(AaNoise, EachValueMayStandAnywhere) {
  std::vector<double> values(5, 1.0);
  for (double& outlier : values) {
    outlier = 3;  // alone with another in the smaller half it doubles its median: 2 of 5 times
    EXPECT_DOUBLE_EQ(*aa_noise(values), 1);
    outlier = 1;
  }
}

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1}), 5);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({40, 1, 30, 2}), 16);
  EXPECT_THROW(median({}), std::invalid_argument);
}

TEST(Summarize, OfAFewValuesIsTheirRange) {
  const Summary one = summarize({3});
  EXPECT_EQ(one.interval, IntervalKind::one_value);
  EXPECT_EQ(one.n, 1);
  EXPECT_EQ(interval_of(2), IntervalKind::range);
  const Summary four = summarize({4, 1, 3, 2});
  EXPECT_EQ(four.interval, IntervalKind::range);
  EXPECT_EQ(four.median, 2.5);
  EXPECT_EQ(four.min, 1);
  EXPECT_EQ(four.ci_low, 1);
  EXPECT_EQ(four.max, 4);
  EXPECT_EQ(four.ci_high, 4);
  EXPECT_EQ(interval_of(4), IntervalKind::range);
  EXPECT_EQ(interval_of(5), IntervalKind::bootstrap);
  const Summary five = summarize({9, 7, 8, 7, 7});
  EXPECT_EQ(five.interval, IntervalKind::bootstrap);
  EXPECT_EQ(five.min, 7);
  EXPECT_EQ(five.max, 9);
  EXPECT_EQ(to_string(IntervalKind::range), "range");
  EXPECT_EQ(to_string(IntervalKind::one_value), "one value");
  EXPECT_EQ(to_string(IntervalKind::prediction), "95 % prediction");
}

/// Order statistics of the binomial distribution: of 1 to n, the k-th from either end.
TEST(MedianInterval, LeavesOutAsManyAsMayLieBeyondTheMedian) {
  for (const auto& [n, k] :
       {std::pair{1, 1}, {5, 1}, {6, 1}, {8, 1}, {9, 2}, {12, 3}, {20, 6}, {1000, 469}, {1001, 469}}) {
    std::vector<double> values;
    for (int i = n; i >= 1; --i) values.push_back(i);
    const Estimate interval = median_interval(values);
    EXPECT_EQ(interval.median, (n + 1) / 2.0) << n;
    EXPECT_EQ(interval.low, k) << n;
    EXPECT_EQ(interval.high, n + 1 - k) << n;
    EXPECT_EQ(interval.n, n);
  }
  EXPECT_EQ(median_interval({}).n, 0);
}

/// A thousand splits drawn as there: the 50th of them from above.
TEST(AaNoise, LeavesOutFiftyOfAThousandSplits) {
  const std::vector<double> values{1, 2, 4, 8, 16, 32, 64, 128, 256};
  std::mt19937 random(54321);
  std::vector<double> drawn = values, differences;
  for (int split = 0; split < 1000; ++split) {
    for (std::size_t i = drawn.size() - 1; i > 0; --i) std::swap(drawn[i], drawn[random() % (i + 1)]);
    std::vector<double> one(drawn.begin(), drawn.begin() + 4), other(drawn.begin() + 4, drawn.end());
    std::ranges::sort(one);
    std::ranges::sort(other);
    differences.push_back(std::abs((one[1] + one[2]) / 2 / other[2] - 1));
  }
  std::ranges::sort(differences);
  EXPECT_EQ(aa_noise(values), differences[949]);
}

}  // namespace
}  // namespace fsdpbench::account
