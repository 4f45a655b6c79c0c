#include "account/run_details.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "account/step_breakdown.h"
#include "schedule/build_schedules.h"
#include "schedule/memory_walk.h"
#include "support/hand_run.h"
#include "support/schedule_cases.h"

namespace fsdpbench::account {
namespace {

TEST(RunDetails, PhasesAddUpAndBandwidthsFollowTheConventions) {
  // Ops of a real schedule laid end to end, 10 us each, on two ranks; every collective waits 4 us for its peers.
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(3, 4));
  const schedule::Schedule& steady = c.schedules.steady();
  schedule::Schedules only_steady;
  only_steady.steps = {steady};
  only_steady.event_count = c.schedules.event_count;
  std::vector<trace::RankTrace> traces(2);
  for (int r : {0, 1}) {
    std::int64_t now = 1000;
    for (std::size_t i = 0; i < steady.ops.size(); ++i) {
      trace::Record record{0, static_cast<std::int32_t>(i), now, 0, 0, 0};
      if (steady.ops[i].has_work()) {
        record.begin_ns = now;
        record.end_ns = now + 10000;
        if (steady.ops[i].is_collective()) record.peers_arrived_ns = now + 4000;
        now += 10000;
      }
      traces[static_cast<std::size_t>(r)].records.push_back(record);
    }
    traces[static_cast<std::size_t>(r)].steps.push_back({0, now + 500});
  }
  const LinkModel link{1e9, 0};
  const RunView view(only_steady, traces);
  const RunDetails details = run_details(view, c.plan, link);
  const StepBreakdown whole = break_down(view.steps().front(), 0);
  PhaseTimes sum;
  for (const PhaseTimes& p : details.phases) {
    EXPECT_NEAR(p.compute_ms + p.exposed_comm_ms + p.exposed_copy_ms + p.idle_ms, p.step_ms, 1e-9);
    sum.step_ms += p.step_ms;
    sum.compute_ms += p.compute_ms;
    sum.exposed_comm_ms += p.exposed_comm_ms;
  }
  EXPECT_NEAR(sum.step_ms * 1e6, static_cast<double>(whole.step), 1e-3);
  EXPECT_NEAR(sum.compute_ms * 1e6, static_cast<double>(whole.computation), 1e-3);
  EXPECT_NEAR(sum.exposed_comm_ms * 1e6, static_cast<double>(whole.exposed_communication), 1e-3);

  ASSERT_FALSE(details.collectives.empty());
  const CollectiveTimes& gather = details.collectives.front();
  EXPECT_EQ(gather.name, "all_gather R");
  EXPECT_EQ(gather.message_bytes, c.plan.units[0].layout.gathered_numel() * 4);  // the output
  EXPECT_DOUBLE_EQ(gather.wait_ms, 0.004);
  EXPECT_DOUBLE_EQ(gather.transfer_ms, 0.006);
  EXPECT_NEAR(gather.algbw_gb_s, static_cast<double>(gather.message_bytes) / 6000.0, 1e-9);
  EXPECT_NEAR(gather.busbw_gb_s, gather.algbw_gb_s * 3 / 4, 1e-9);
  EXPECT_NEAR(gather.link_efficiency.value(), gather.busbw_gb_s, 1e-9);
  EXPECT_EQ(details.units.size(), c.plan.units.size());
}

TEST(RunDetails, ACollectiveIsKnownByWhatItIsInStepsOfOtherSchedules) {
  // Two steps of as many ops, in another order: index 0 is unit 1's gather in one and unit 2's in the other.
  testing::HandRun run(2);
  const auto gather = [&](std::int64_t begin, std::int64_t end, int unit) {
    run.collective(schedule::OpKind::all_gather, Lane::all_gather, testing::Times{begin, end}, schedule::Group::shard,
                   1)
        .unit = unit;
  };
  run.step(0, 100);
  gather(0, 10, 1);
  gather(10, 40, 2);
  run.step(100, 200);
  gather(100, 130, 2);
  gather(130, 140, 1);
  plan::Plan plan;
  plan.units.resize(3);
  for (std::size_t u = 0; u < 3; ++u) plan.units[u].members.label = std::to_string(u);
  plan.groups = plan::Groups(plan::Mesh{2, 1});
  const std::vector<CollectiveTimes> collectives = run_details(run.view(), plan, {}).collectives;
  ASSERT_EQ(collectives.size(), 2U);
  EXPECT_EQ(collectives[0].unit, "2");  // in the order of the steady schedule
  EXPECT_EQ(collectives[0].count, 4);
  EXPECT_NEAR(collectives[0].time_ms * 1e6, 30, 1e-9);
  EXPECT_EQ(collectives[1].unit, "1");
  EXPECT_NEAR(collectives[1].time_ms * 1e6, 10, 1e-9);
}

TEST(MemoryPeak, IsWhereMostIsLiveAndItsBuffersAddUp) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(3, 4));
  const schedule::MemoryPeak peak = schedule::memory_peak(c.schedules.steady());
  std::int64_t sum = 0;
  for (schedule::BufferId id : peak.live) sum += c.schedules.steady().buffers[static_cast<std::size_t>(id)].bytes;
  EXPECT_EQ(sum, peak.live_bytes);
  ASSERT_GE(peak.op, 0);
  EXPECT_EQ(c.schedules.steady().ops[static_cast<std::size_t>(peak.op)].phase, schedule::Phase::backward);
}

/// 100 bytes from 10 on until an op ends at 90, 30 bytes of an op that begins and ends meanwhile.
TEST(MemoryTimeline, IsInTheOrderOfTimeNotOfIssue) {
  testing::HandRun run;
  run.step(1000, 1100);
  schedule::Schedule& step = run.schedules.steps[0];
  step.buffers.resize(2);
  step.buffers[0].bytes = 100;
  step.buffers[1].bytes = 30;
  schedule::Op& first = run.forward({1010, 1090});
  first.allocates = first.frees = {0};
  schedule::Op& second = run.op(schedule::OpKind::copy_in, Lane::copy, testing::Times{1020, 1050});
  second.allocates = second.frees = {1};
  std::vector<std::pair<std::int64_t, std::int64_t>> levels;
  const RunView view = run.view();
  for (const trace::LiveBytes& level : memory_timeline(view.steps().front(), 0)) {
    levels.emplace_back(level.time_ns, std::accumulate(level.live.begin(), level.live.end(), std::int64_t{0}));
  }
  EXPECT_EQ(levels,
            (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {10, 100}, {20, 130}, {50, 100}, {90, 0}}));
}

}  // namespace
}  // namespace fsdpbench::account
