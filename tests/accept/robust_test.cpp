#include "accept/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

TEST(RobustTest, TheIntervalHoldsTheMedianAsOftenAsItSays) {
  std::mt19937 random(7);
  std::exponential_distribution<double> skewed(1);
  const double truth = std::log(2.0);
  for (const int n : {6, 9, 30, 101, 1500}) {
    int held = 0;
    for (int trial = 0; trial < 400; ++trial) {
      std::vector<double> values;
      for (int i = 0; i < n; ++i) values.push_back(skewed(random));
      const Interval interval = median_interval(values);
      held += interval.low <= truth && truth <= interval.high ? 1 : 0;
    }
    EXPECT_GE(held, 370) << n << " values";
  }
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
