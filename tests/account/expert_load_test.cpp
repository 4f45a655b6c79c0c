#include "account/run_details.h"

#include <gtest/gtest.h>

#include "config/expert_load.h"

namespace fsdpbench::account {
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

TEST(ExpertLoad, RowsOfExpertsSayItForASimulation) {
  const config::ExpertLoad load{config::ExpertLoad::Kind::rows, 1, {14, 8, 6, 12}};
  EXPECT_DOUBLE_EQ(config::imbalance_of(load, 4, 2, 2), 22.0 / 20);
  EXPECT_DOUBLE_EQ(config::imbalance_of(load, 4, 2, 4), 14.0 / 10);
  EXPECT_DOUBLE_EQ(config::imbalance_of(load, 4, 2, 1), 1);
}

TEST(ExpertLoad, OfZipfAddsUpAndNoExpertHasMoreThanAllTokens) {
  const std::vector<double> mild = config::zipf_shares(4, 1, 1);
  const double harmonic = 1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4;
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(mild[k], 1 / harmonic / static_cast<double>(k + 1), 1e-12);
  // Squared and with two experts a token, the first has all tokens, and the others share the rest.
  const std::vector<double> steep = config::zipf_shares(4, 2, 2);
  const double others = 1.0 / 4 + 1.0 / 9 + 1.0 / 16;
  EXPECT_EQ(steep[0], 1);
  EXPECT_NEAR(steep[1], 1.0 / 4 / others, 1e-12);
  EXPECT_NEAR(steep[3], 1.0 / 16 / others, 1e-12);
  EXPECT_EQ(config::zipf_shares(4, 4, 3), std::vector<double>(4, 1.0));
}

TEST(ExpertLoad, OfZipfIsTheMeanOverPlacements) {
  const auto of = [](double exponent, std::int64_t ranks) {
    return config::imbalance_of({config::ExpertLoad::Kind::zipf, exponent, {}}, 4, 1, ranks);
  };
  EXPECT_EQ(of(0, 2), 1);
  EXPECT_EQ(of(1, 1), 1);
  // As many ranks as experts: whatever the placement, the busiest has the first.
  EXPECT_NEAR(of(1, 4), 4 / (25.0 / 12), 1e-9);
  // Two ranks: the first expert is with each other one as often; 12 + 6, 12 + 4, 12 + 3 of 25.
  EXPECT_NEAR(of(1, 2), 2 * (18.0 + 16 + 15) / 3 / 25, 0.02);
  EXPECT_GT(of(2, 2), of(1, 2));
}

}  // namespace
}  // namespace fsdpbench::account
