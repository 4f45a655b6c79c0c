#include "account/late_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fsdpbench::account {
namespace {

std::vector<double> noisy(std::size_t n, double sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, sigma);
  std::vector<double> values(n);
  for (double& value : values) value = 100 * std::exp(noise(random));
  return values;
}

TEST(Settling, FindsSlowFirstSteps) {
  std::vector<double> values = noisy(20, 0.01, 1);
  values[0] = 200;
  values[1] = 140;
  values[2] = 115;
  const auto settling = find_settling(values);
  ASSERT_TRUE(settling);
  EXPECT_EQ(settling->unsettled, 3);
  EXPECT_FALSE(settling->never_settled);
}

TEST(Settling, FindsFastFirstSteps) {
  std::vector<double> values = noisy(30, 0.01, 2);
  for (std::size_t i = 0; i < 5; ++i) values[i] *= 0.8;
  ASSERT_TRUE(find_settling(values));
  EXPECT_EQ(find_settling(values)->unsettled, 5);
}

TEST(Settling, SaysWhenARunNeverSettles) {
  std::vector<double> values = noisy(20, 0.01, 5);
  for (std::size_t i = 0; i < 11; ++i) values[i] *= 1.5;
  ASSERT_TRUE(find_settling(values));
  EXPECT_TRUE(find_settling(values)->never_settled);
}

TEST(Settling, RarelySeesAnythingInSteadyNoise) {
  int found = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    found += find_settling(noisy(10 + seed % 30, 0.03, seed)).value().unsettled > 0 ? 1 : 0;
  }
  EXPECT_LE(found, 10);
}

TEST(Settling, ALateOutlierIsNoWarmup) {
  std::vector<double> values = noisy(20, 0.01, 3);
  values[17] = 300;
  EXPECT_EQ(find_settling(values).value().unsettled, 0);
}

TEST(Settling, EqualValuesAreSteady) { EXPECT_EQ(find_settling(std::vector<double>(12, 5.0)).value().unsettled, 0); }

TEST(Settling, TooFewValuesSayNothing) {
  EXPECT_FALSE(find_settling(noisy(7, 0.01, 4)));
  EXPECT_TRUE(find_settling(noisy(8, 0.01, 4)));
}

/// The first of eight is off by 3, which is less than 1 % of 1000.
TEST(Settling, WhatHardlyDiffersIsSettled) {
  std::vector<double> values(8, 1000);
  values[0] = 1003;
  EXPECT_EQ(find_settling(values).value().unsettled, 0);
  values[0] = 1030;
  EXPECT_EQ(find_settling(values).value().unsettled, 1);
  values.resize(20, 1000);
  values[17] = 3000;
  EXPECT_EQ(find_settling(values).value().unsettled, 0) << "without the first the rest is known no better";
}

}  // namespace
}  // namespace fsdpbench::account
