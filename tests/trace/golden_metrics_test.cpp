// Traces whose values are known give these values through the metrics.
#include <gtest/gtest.h>

#include "base/intervals.h"

namespace fsdpbench::account {
namespace {

struct Golden {
  std::vector<Interval> computation, communication;
  std::int64_t begin, end;
  std::int64_t expected_computation, expected_communication, expected_overlap, expected_exposed, expected_idle;
};

void check(const Golden& golden) {
  const IntervalSet computation = unite(golden.computation);
  const IntervalSet communication = unite(golden.communication);
  const IntervalSet all = unite(computation, communication);
  EXPECT_EQ(length(computation), golden.expected_computation);
  EXPECT_EQ(length(communication), golden.expected_communication);
  EXPECT_EQ(length(computation) + length(communication) - length(all), golden.expected_overlap);
  EXPECT_EQ(length(intersect(computation, communication)), golden.expected_overlap);
  EXPECT_EQ(length(subtract(communication, computation)), golden.expected_exposed);
  EXPECT_EQ(length(subtract({{golden.begin, golden.end}}, all)), golden.expected_idle);
}

TEST(GoldenTrace, TwoStreamsWithOneGather) {
  check({{{100, 200}, {260, 300}}, {{150, 250}}, 100, 300, 140, 100, 50, 50, 10});
}

TEST(GoldenTrace, TwoStreamsWithTwoCollectives) {  // microseconds
  check({{{1000, 2000}, {3000, 4000}, {8000, 9000}},
         {{4500, 5500}, {2500, 3500}},
         1000,
         9000,
         3000,
         2000,
         500,
         1500,
         3500});
}

}  // namespace
}  // namespace fsdpbench::account
