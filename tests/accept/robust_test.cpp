#include "accept/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "account/late_ranks.h"

namespace fsdpbench::accept {
namespace {

TEST(RobustTest, TheIntervalIsThatOfTheBinomialDistribution) {
  std::vector<double> values;
  for (int i = 1; i <= 20; ++i) values.push_back(i);
  const Interval interval = median_interval(values);  // tables: ranks 6 and 15 of 20 hold the median with 95.9 %
  EXPECT_EQ(interval.median, 10.5);
  EXPECT_EQ(interval.low, 6);
  EXPECT_EQ(interval.high, 15);
  values.resize(5);  // no pair of five holds it with 95 %
  EXPECT_EQ(median_interval(values).low, 1);
  EXPECT_EQ(median_interval(values).high, 5);
  EXPECT_EQ(median_interval({}).n, 0);
}

/// The k-th of n values from below and from above hold the median unless fewer than k are on one of its sides.
TEST(RobustTest, TheIntervalIsTheNarrowestThatHoldsTheMedianWithNinetyFivePercent) {
  const auto held = [](int n, int k) { return 1 - 2 * account::binomial_tail(n, n - k + 1, 0.5); };
  for (const int n : {6, 8, 9, 30, 101, 999, 1000, 1001, 1500, 4000}) {
    std::vector<double> values;
    for (int i = n; i > 0; --i) values.push_back(i);
    const Interval interval = median_interval(values);
    const int k = static_cast<int>(interval.low);
    EXPECT_EQ(interval.high, n + 1 - k) << n;
    EXPECT_GE(held(n, k), 0.95) << n;
    EXPECT_LT(held(n, n > 1000 ? k + 2 : k + 1), 0.95) << n << " values, beyond 1000 by the normal distribution";
  }
}

/// Distances from 4 are 3, 2, 0, 4 and 8.
TEST(RobustTest, TheDeviationIsOfTheDistancesFromTheMedian) {
  EXPECT_DOUBLE_EQ(robust_deviation(std::vector<double>{1, 2, 4, 8, 12}), 3 * 1.4826);
}

TEST(RobustTest, SomeOutliersDoNotWidenWhatIsAllowed) {
  std::vector<double> values(20, 1.0);
  for (int i = 0; i < 20; ++i) values[static_cast<std::size_t>(i)] += 0.001 * i;
  EXPECT_NEAR(allowed_shortfall(values), 0.054, 0.001);
  values[3] = 0.1;
  values[4] = 0.2;
  EXPECT_NEAR(allowed_shortfall(values), 0.054, 0.001);
  std::vector<double> wide;
  for (int i = 0; i < 21; ++i) wide.push_back(1 + 0.02 * (i - 10));
  EXPECT_NEAR(allowed_shortfall(wide), 3 * 0.14826 + 2.5 * 0.14826 / std::sqrt(21.0), 1e-9);
}

}  // namespace
}  // namespace fsdpbench::accept
