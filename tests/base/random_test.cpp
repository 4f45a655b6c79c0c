#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fsdpbench {
namespace {

TEST(NormalQuantile, IsTheInverseOfTheDistribution) {
  for (const double p : {1e-12, 1e-6, 0.001, 0.02, 0.07, 0.075, 0.3, 0.5, 0.6, 0.925, 0.93, 0.999, 1 - 1e-9}) {
    const double x = normal_quantile(p);
    EXPECT_NEAR(std::erfc(-x / std::sqrt(2.0)) / 2 / p, 1, 1e-5) << p;
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
  EXPECT_EQ(normal_quantile(0.25), -normal_quantile(0.75));
}

/// Parameters of models are drawn by these: their bits may not change.
TEST(SplitMixed, GivesTheNumbersOfItsAuthors) {
  // SplitMix64 from state 1234567: what its outputs are known to be.
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected : {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL}) {
    EXPECT_EQ(split_mixed(state), expected);
    state += 0x9E3779B97F4A7C15ULL;
  }
}

}  // namespace
}  // namespace fsdpbench
