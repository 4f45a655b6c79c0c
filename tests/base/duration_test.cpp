#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace fsdpbench {
namespace {

TEST(Duration, IsTheNearestNanosecond) {
  EXPECT_EQ(whole_ns(0), 0);
  EXPECT_EQ(whole_ns(1499.6), 1500);
  EXPECT_EQ(whole_ns(-3), 0);
}

TEST(Duration, WhatNoIntegerHoldsIsTheLongest) {
  for (const double huge : {1e19, 1e300, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(), static_cast<double>(kLongest_ns)}) {
    EXPECT_EQ(whole_ns(huge), kLongest_ns);
  }
}

}  // namespace
}  // namespace fsdpbench
