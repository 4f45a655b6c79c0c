#include "metrics/expert_load.h"

#include <gtest/gtest.h>

#include "config/expert_load.h"

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

/// A mean of ten rows an expert, of which it takes at most 1.1 times as many.
TEST(ExpertLoad, OfExpertsThatTakeNoMoreThanSomeRows) {
  using config::ExpertLoad;
  const ExpertLoad rows{ExpertLoad::Kind::rows, 1, {14, 8, 6, 12}};
  const config::LimitedLoad of_two = config::limited_load(rows, 4, 2, 2, 1.1);
  EXPECT_DOUBLE_EQ(of_two.busiest, (11.0 + 8) / 20);
  EXPECT_DOUBLE_EQ(of_two.mean, (11.0 + 8 + 6 + 11) / 40);
  EXPECT_DOUBLE_EQ(config::limited_load(rows, 4, 2, 2, 2).busiest, config::imbalance_of(rows, 4, 2, 2));
  // The busiest of four ranks would get twice the mean, the others two thirds of it.
  const ExpertLoad twice{ExpertLoad::Kind::factor, 2, {}};
  EXPECT_DOUBLE_EQ(config::limited_load(twice, 4, 2, 4, 1.25).busiest, 1.25);
  EXPECT_DOUBLE_EQ(config::limited_load(twice, 4, 2, 4, 1.25).mean, (1.25 + 2) / 4);
  EXPECT_DOUBLE_EQ(config::limited_load(twice, 4, 2, 4, 0.5).mean, 0.5);
  EXPECT_DOUBLE_EQ(config::limited_load({}, 4, 2, 4, 0.5).busiest, 0.5);
  EXPECT_DOUBLE_EQ(config::limited_load({}, 4, 2, 1, 1.25).busiest, 1);
  // With one rank for each expert the busiest has the most popular one.
  const ExpertLoad zipf{ExpertLoad::Kind::zipf, 1, {}};
  EXPECT_NEAR(config::limited_load(zipf, 4, 1, 4, 1.5).busiest, 1.5, 1e-9);
  EXPECT_NEAR(config::limited_load(zipf, 4, 1, 4, 1.5).mean, (1.5 / 4) + (1 - 12.0 / 25), 1e-9);
}

TEST(ExpertLoad, SaysWhatWasDropped) {
  EXPECT_DOUBLE_EQ(dropped_share({{10, 5}, {20, 5}}, {4, 6}).value(), 0.2);
  EXPECT_EQ(dropped_share({{10, 5}}, {0}).value(), 0);
  EXPECT_FALSE(dropped_share({{10, 5}}, {}).has_value()) << "no expert has a capacity";
  EXPECT_FALSE(dropped_share({{0, 0}}, {0}).has_value());
}

TEST(ExpertLoad, IsNotKnownWithoutRows) {
  EXPECT_FALSE(expert_imbalance({}, 2).has_value());
  EXPECT_FALSE(expert_imbalance({{0, 0}}, 2).has_value());
}

}  // namespace
}  // namespace fsdpbench::metrics
