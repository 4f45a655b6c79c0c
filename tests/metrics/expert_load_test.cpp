#include "metrics/expert_load.h"

#include <gtest/gtest.h>

namespace fsdpbench::metrics {
namespace {

TEST(ExpertLoad, IsTheBusiestRanksRowsOverTheMean) {
  // Of 40 rows 22 come to the first two experts; of one expert's mean of 10 the busiest has 14. The other block is
  // even.
  const std::vector<std::vector<std::int64_t>> rows{{14, 8, 6, 12}, {5, 5, 5, 5}};
  EXPECT_DOUBLE_EQ(expert_imbalance(rows, 2).value(), (22.0 / 20 + 1) / 2);
  EXPECT_DOUBLE_EQ(expert_imbalance(rows, 1).value(), (14.0 / 10 + 1) / 2);
  EXPECT_DOUBLE_EQ(expert_imbalance(rows, 4).value(), (14.0 / 10 + 1) / 2);
  EXPECT_DOUBLE_EQ(expert_imbalance({{0, 0, 9, 0}}, 2).value(), 2) << "one rank has all rows";
}

TEST(ExpertLoad, IsNotKnownWithoutRows) {
  EXPECT_FALSE(expert_imbalance({}, 2).has_value());
  EXPECT_FALSE(expert_imbalance({{0, 0}}, 2).has_value());
}

}  // namespace
}  // namespace fsdpbench::metrics
