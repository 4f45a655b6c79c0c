#include "account/step_bound.h"

#include <gtest/gtest.h>

#include "clock/op_times.h"
#include "support/hand_run.h"
#include "support/random_config.h"

namespace fsdpbench::account {
namespace {

using schedule::OpKind;
using testing::HandRun;
using testing::Times;

trace::StepBound bound_of(const HandRun& run) {
  const RunView view = run.view();
  return step_bound(StepView(view.steps().front(), 0));
}

TEST(StepBound, FollowsTheChainAndNamesItsLane) {
  HandRun run;
  run.step(0, 1000);
  run.collective(OpKind::all_gather, Lane::all_gather, {.begin = 100, .end = 160, .arrived = 150}).record = 0;
  run.forward({.begin = 300, .end = 330}).waits = {{0}};
  run.collective(OpKind::all_gather, Lane::all_gather, {.begin = 400, .end = 500}).record = 1;
  run.forward({.begin = 600, .end = 620}).waits = {{1}};
  // 10 without the wait for peers, then 100 beside 30 of computation, then 20.
  const trace::StepBound bound = bound_of(run);
  EXPECT_EQ(bound.ns, 130);
  EXPECT_EQ(bound.lane, Lane::all_gather);
  EXPECT_EQ(bound.lane_ns, 110);
}

TEST(StepBound, WaitsWithTheHost) {
  HandRun run;
  run.step(0, 1000);
  run.forward({.begin = 100, .end = 150}).record = 0;
  run.op(OpKind::host_wait, Lane::compute, Times{.end = 200}).waits = {{0}};
  run.collective(OpKind::all_gather, Lane::all_gather, {.begin = 300, .end = 320});
  EXPECT_EQ(bound_of(run).ns, 70);
  EXPECT_EQ(bound_of(run).lane, Lane::compute);
  run.op(OpKind::host_sync, Lane::compute, Times{.end = 400});
  run.forward({.begin = 500, .end = 501});
  EXPECT_EQ(bound_of(run).ns, 71);
}

TEST(StepBound, OfAStepWithoutOpsIsNothing) {
  HandRun run;
  run.step(0, 10);
  run.op(OpKind::reshard, Lane::compute, Times{});
  EXPECT_EQ(bound_of(run).ns, 0);
}

TEST(StepBound, IsTheMaxPlusBoundOfTheRankAlone) {
  std::mt19937 random(17);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const testing::ScheduleCase c = testing::make_case(testing::random_config_of_round(random, round));
    const schedule::Schedules steady{{c.schedules.steady()}, c.schedules.event_count};
    std::vector<trace::RankTrace> traces(1);
    traces.front().steps = {{0, 1'000'000}};
    clock::OpDurations durations;
    for (std::size_t i = 0; i < steady.steady().ops.size(); ++i) {
      durations.push_back(static_cast<std::int64_t>(random() % 1000));
      traces.front().records.push_back({0, static_cast<std::int32_t>(i), 0, 7, 7 + durations.back(), 0});
    }
    const RunView view(steady, traces);
    EXPECT_EQ(step_bound(StepView(view.steps().front(), 0)).ns,
              clock::max_plus_bound(steady.steady(), steady.event_count, plan::Groups(), {durations}));
  }
}

}  // namespace
}  // namespace fsdpbench::account
