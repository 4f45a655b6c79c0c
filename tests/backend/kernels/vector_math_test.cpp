#include "backend/cpu/kernels/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace fsdpbench::backend::cpu {
namespace {

TEST(VectorMath, ExponentialIsGoodToTwoUlp) {
  double worst = 0;
  for (double x = -87.0; x <= 88.0; x += 0.00037) {
    const auto argument = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(argument));
    worst = std::max(worst, std::abs(fast_exp(argument) / exact - 1.0));
  }
  EXPECT_LT(worst, 2 * 0x1p-23);
  EXPECT_EQ(fast_exp(0.0F), 1.0F);
  EXPECT_EQ(fast_exp(-88.0F), 0.0F);
  EXPECT_EQ(fast_exp(-INFINITY), 0.0F);
  EXPECT_TRUE(std::isnan(fast_exp(NAN)));
}

TEST(VectorMath, SigmoidAtBothEnds) {
  for (const float x : {-1e30F, -90.0F, -3.0F, -1e-3F, 0.0F, 1e-3F, 3.0F, 90.0F, 1e30F}) {
    EXPECT_NEAR(sigmoid(x), 1.0 / (1.0 + std::exp(-static_cast<double>(x))), 1e-7);
  }
  EXPECT_TRUE(std::isnan(sigmoid(NAN)));
}

TEST(VectorMath, SumsAndMaximaOfAnyLength) {
  for (std::int64_t count = 1; count < 140; ++count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), 1.0F);
    const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
    EXPECT_EQ(lane_sum<float>(count, value), static_cast<float>(count * (count + 1) / 2));
    EXPECT_EQ(lane_max(count, value), static_cast<float>(count));
    EXPECT_EQ(lane_max(count, [&](std::int64_t i) { return -value(i); }), -1.0F);
  }
}

}  // namespace
}  // namespace fsdpbench::backend::cpu
