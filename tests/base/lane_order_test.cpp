#include "base/lane_blocks.h"

#include <gtest/gtest.h>

namespace fsdpbench {
namespace {

TEST(LaneOrder, NumbersOpsFromOneOnEachLane) {
  LaneOrder order;
  EXPECT_EQ(order.last(Lane::compute), 0);
  EXPECT_EQ(order.issue(Lane::compute), 1);
  EXPECT_EQ(order.issue(Lane::compute), 2);
  EXPECT_EQ(order.issue(Lane::copy), 1);
  EXPECT_EQ(order.last(Lane::compute), 2);
}

TEST(LaneOrder, ALaneKnowsItsOwnOpsOnly) {
  LaneOrder order;
  order.issue(Lane::compute);
  EXPECT_TRUE(order.now(Lane::compute).covers(Lane::compute, 1));
  EXPECT_FALSE(order.now(Lane::all_gather).covers(Lane::compute, 1));
}

TEST(LaneOrder, AnEventCarriesWhatItsLaneKnewAndNothingLater) {
  LaneOrder order;
  order.issue(Lane::compute);
  const LaneClock event = order.record(Lane::compute);
  order.issue(Lane::compute);
  order.wait(Lane::all_gather, event);
  EXPECT_TRUE(order.now(Lane::all_gather).covers(Lane::compute, 1));
  EXPECT_FALSE(order.now(Lane::all_gather).covers(Lane::compute, 2));
}

TEST(LaneOrder, WaitsAreTransitive) {
  LaneOrder order;
  order.issue(Lane::compute);
  order.wait(Lane::all_gather, order.record(Lane::compute));
  order.issue(Lane::all_gather);
  order.wait(Lane::copy, order.record(Lane::all_gather));
  EXPECT_TRUE(order.now(Lane::copy).covers(Lane::compute, 1));
  EXPECT_TRUE(order.now(Lane::copy).covers(Lane::all_gather, 1));
}

TEST(LaneOrder, AHostWaitOrdersEveryLaneButNotEventsRecordedBefore) {
  LaneOrder order;
  order.issue(Lane::compute);
  order.issue(Lane::copy);
  const LaneClock before = order.record(Lane::copy);
  order.host_wait(order.record(Lane::compute));
  for (const Lane lane : kLanes) EXPECT_TRUE(order.now(lane).covers(Lane::compute, 1));
  EXPECT_FALSE(before.covers(Lane::compute, 1));
  EXPECT_FALSE(order.now(Lane::all_gather).covers(Lane::copy, 1));
}

}  // namespace
}  // namespace fsdpbench
