#include "model/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace fsdpbench::model {
namespace {

plan::ParameterShape normal(std::int64_t rows, std::int64_t columns) {
  return {"weight", {rows, columns}, 0, plan::Initialization::normal, 0.02F};
}

std::vector<float> fill(plan::ParameterShape shape, int number, std::uint64_t seed) {
  shape.number = number;
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  initialize_parameter(shape, seed, 0, shape.numel(), values.data());
  return values;
}

TEST(Initialize, AnyRangeIsThatPartOfTheWhole) {
  plan::ParameterShape shape = normal(51, 52);  // more than are made at once
  shape.number = 3;
  const std::vector<float> whole = fill(shape, 3, 7);
  for (const std::int64_t shards : {2, 3, 4, 8, 221, 2652}) {
    std::vector<float> joined(whole.size());
    for (std::int64_t s = 0; s < shards; ++s) {
      const std::int64_t begin = shape.numel() * s / shards;
      const std::int64_t end = shape.numel() * (s + 1) / shards;
      initialize_parameter(shape, 7, begin, end, joined.data() + begin);
    }
    EXPECT_EQ(joined, whole);
  }
  initialize_parameter(shape, 7, 5, 5, nullptr);  // an empty shard
}

/// One element by the published algorithms (SplitMix64, AS 241), as digests of earlier versions have it.
float alone(std::uint64_t seed, std::uint64_t index, std::uint64_t element, double deviation) {
  const auto mix = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  };
  const std::uint64_t bits = mix(mix(mix(seed) ^ index) ^ mix(element));
  const double p = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return static_cast<float>(deviation *
                              (q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
                               (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0)));
  }
  const double tail = std::sqrt(-std::log(q < 0 ? p : 1.0 - p));
  const double r = tail - (tail <= 5.0 ? 1.6 : 5.0);
  const double x = tail <= 5.0 ? (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
                                     ((0.12021132975 * r + 0.73700164250) * r + 1.0)
                               : (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
                                     ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  return static_cast<float>(deviation * (q < 0 ? -x : x));
}

TEST(Initialize, ManyAtOnceHaveTheBitsOfEachAlone) {
  const plan::ParameterShape shape = normal(300, 1000);
  const std::vector<float> values = fill(shape, 5, 11);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], alone(11, 5, i, shape.deviation)) << i;
  }
}

TEST(Initialize, SeedAndIndexGiveOtherValues) {
  const plan::ParameterShape shape = normal(8, 8);
  EXPECT_EQ(fill(shape, 0, 1), fill(shape, 0, 1));
  EXPECT_NE(fill(shape, 0, 1), fill(shape, 1, 1));
  EXPECT_NE(fill(shape, 0, 1), fill(shape, 0, 2));
}

TEST(Initialize, IsNormal) {
  std::vector<float> values = fill(normal(1000, 400), 0, 1);
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  EXPECT_NEAR(sum / count, 0.0, 4 * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 0.02 * 4 / std::sqrt(2 * count));
  // Largest distance from the normal distribution (Kolmogorov-Smirnov): 1.95 / sqrt(n) at one in a thousand.
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = 0.5 * std::erfc(-values[i] / 0.02 / std::sqrt(2.0));
    distance = std::max(distance, std::abs(expected - static_cast<double>(i) / count));
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(count));
}

TEST(Initialize, OnesAndZeros) {
  EXPECT_EQ(fill({"norm", {3}, 0, plan::Initialization::ones, 0.0F}, 0, 1), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(fill({"bias", {2}, 0, plan::Initialization::zeros, 0.0F}, 0, 1), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace fsdpbench::model
