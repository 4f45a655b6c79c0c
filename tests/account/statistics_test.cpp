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

}  // namespace
}  // namespace fsdpbench::account
