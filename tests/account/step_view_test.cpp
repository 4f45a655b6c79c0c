#include "account/step_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Group;
using schedule::OpKind;
using ::testing::ElementsAre;
using testing::HandRun;
using testing::Times;

TEST(StepView, KnowsWhatIsBeforeAnOp) {
  HandRun run;
  run.step(0, 1000);
  run.collective(OpKind::all_gather, Lane::all_gather, {100, 160, 10}).record = 3;                     // 0
  run.op(OpKind::host_wait, Lane::compute, Times{0, 170, 20}).waits = {{3}, {5}};                      // 1
  run.forward({200, 300, 180}).waits = {{3}};                                                          // 2
  run.collective(OpKind::reduce_scatter, Lane::reduce_scatter, {300, 400, 181}).record = 5;            // 3
  run.collective(OpKind::all_reduce, Lane::all_gather, {400, 450, 182}, Group::replicate).record = 3;  // 4
  run.op(OpKind::host_sync, Lane::compute, Times{0, 460, 183});                                        // 5
  run.op(OpKind::release, Lane::all_gather, Times{0, 0, 190}).waits = {{5}, {3}};                      // 6
  run.collective(OpKind::all_gather, Lane::all_gather, {500, 600, 470});                               // 7
  run.op(OpKind::reshard, Lane::copy, Times{0, 0, 480}).waits = {{1}};                                 // 8
  run.op(OpKind::reshard, Lane::copy, Times{0, 0, 470});                                               // 9
  const RunView all = run.view();
  const StepView view(all.steps().front(), 0);
  std::vector<int> lanes, communicators, hosts;
  std::vector<std::int64_t> done;
  for (int i = 0; i < view.size(); ++i) {
    lanes.push_back(view.lane_before(i));
    communicators.push_back(view.communicator_before(i));
    hosts.push_back(view.host_blocked_before(i));
    done.push_back(view.done(i));
  }
  EXPECT_THAT(lanes, ElementsAre(-1, -1, -1, -1, 0, -1, 4, 6, -1, 8));
  EXPECT_THAT(communicators, ElementsAre(-1, -1, -1, 0, -1, -1, -1, 3, -1, -1));
  EXPECT_THAT(hosts, ElementsAre(-1, -1, 1, 1, 1, 1, 5, 5, 5, 5));
  EXPECT_THAT(done, ElementsAre(160, 170, 300, 400, 450, 460, 450, 600, 480, 480)) << "what has no work, once all is";
  EXPECT_EQ(view.recorded_by(1, 0), 0);
  EXPECT_EQ(view.recorded_by(1, 1), -1);
  EXPECT_EQ(view.recorded_by(2, 0), 0);
  EXPECT_EQ(view.recorded_by(6, 0), 3);
  EXPECT_EQ(view.recorded_by(6, 1), 4);
  EXPECT_EQ(view.recorded_by(8, 0), -1);
}

/// An op without work that waits for the first op of all.
TEST(StepView, WhatHasNoWorkIsDoneWithTheFirstOp) {
  HandRun run;
  run.step(0, 100);
  run.op(OpKind::copy_in, Lane::copy, Times{10, 50, 5}).record = 0;
  run.op(OpKind::release, Lane::copy, Times{0, 0, 6});
  run.op(OpKind::release, Lane::compute, Times{0, 0, 7}).waits = {{0}};
  run.op(OpKind::release, Lane::compute, Times{0, 0, 60}).waits = {{0}};
  const RunView all = run.view();
  const StepView view(all.steps().front(), 0);
  EXPECT_EQ(view.done(1), 50);
  EXPECT_EQ(view.done(2), 50);
  EXPECT_EQ(view.done(3), 60);
}

TEST(OpKeys, CountWhatIsEqual) {
  HandRun run;
  run.step(0, 100);
  for (const int unit : {1, 2, 1, 1, 2}) run.forward({}, unit);
  std::vector<int> occurrences;
  for (const OpKey& key : op_keys(run.schedules.steps[0])) occurrences.push_back(key.occurrence);
  EXPECT_THAT(occurrences, ElementsAre(0, 0, 1, 2, 1));
}

}  // namespace
}  // namespace fsdpbench::account
