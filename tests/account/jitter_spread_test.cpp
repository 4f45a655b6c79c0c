#include "account/statistics.h"

#include <gtest/gtest.h>

namespace fsdpbench::account {
namespace {

TEST(JitterSpread, IsNumpysQuantilesAndTheMediansLoss) {
  const JitterSpread s = jitter_spread({14, 10, 12, 11, 13}, 9);
  EXPECT_DOUBLE_EQ(s.p50_ms, 12);
  EXPECT_DOUBLE_EQ(s.p95_ms, 13.8);
  EXPECT_DOUBLE_EQ(s.p99_ms, 13.96);
  EXPECT_DOUBLE_EQ(s.lost_to_jitter_pct(), 25);
}

TEST(JitterSpread, OfOneStepIsThatStep) {
  const JitterSpread s = jitter_spread({5}, 5);
  EXPECT_EQ(s.p99_ms, 5);
  EXPECT_EQ(s.lost_to_jitter_pct(), 0);
}

}  // namespace
}  // namespace fsdpbench::account
