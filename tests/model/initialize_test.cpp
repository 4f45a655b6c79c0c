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

std::vector<float> fill(const plan::ParameterShape& shape, int index, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  initialize_parameter(shape, index, seed, 0, shape.numel(), values.data());
  return values;
}

TEST(Initialize, AnyRangeIsThatPartOfTheWhole) {
  const plan::ParameterShape shape = normal(13, 17);
  const std::vector<float> whole = fill(shape, 3, 7);
  for (const std::int64_t shards : {2, 3, 4, 8, 221}) {
    std::vector<float> joined(whole.size());
    for (std::int64_t s = 0; s < shards; ++s) {
      const std::int64_t begin = shape.numel() * s / shards;
      const std::int64_t end = shape.numel() * (s + 1) / shards;
      initialize_parameter(shape, 3, 7, begin, end, joined.data() + begin);
    }
    EXPECT_EQ(joined, whole);
  }
  initialize_parameter(shape, 3, 7, 5, 5, nullptr);  // an empty shard
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
