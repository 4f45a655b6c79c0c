#include "account/cause_report.h"

#include <gtest/gtest.h>

#include "account/run_metrics.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;
using testing::HandRun;
using testing::Times;

plan::Plan plan_of(int ranks) {
  plan::Plan plan;
  plan.mesh = {ranks, 1};
  plan.groups = plan::Groups(plan.mesh);
  plan.units.resize(6);
  for (std::size_t u = 0; u < plan.units.size(); ++u) plan.units[u].members.label = std::to_string(u);
  return plan;
}

CauseReport report(const HandRun& run) {
  return rank_causes(run.view(), plan_of(static_cast<int>(run.traces.size())), schedule::Policy{}, {});
}

/// Computes for 100 ns, waits for the gather of `unit` until `end`, computes for 50 ns.
void add_gather_step(HandRun& run, std::int64_t at, int unit, std::int64_t end, int marks_before) {
  run.step(at, at + end + 50);
  for (int i = 0; i < marks_before; ++i) {
    Op& mark = run.op(OpKind::release, Lane::compute, Times{0, 0, at, 0});
    mark.unit = 5;
  }
  run.forward({at, at + 100, at});
  Op& gather = run.collective(OpKind::all_gather, Lane::all_gather, Times{at, at + end, at, 0});
  gather.unit = unit;
  gather.record = 0;
  Op& after = run.forward({at + end, at + end + 50, at}, unit);
  after.waits.push_back({0});
}

TEST(CauseReport, AnOpIsKnownByWhatItIsNotByItsIndexInSomeSchedule) {
  // The measured step has its own schedule, longer than the steady one: its gather has index 3, which is past the end
  // of the steady schedule's ops but one, and its neighbours there are others.
  HandRun run(2);
  add_gather_step(run, 0, 3, 180, 2);
  schedule::Schedule steady;
  for (int i = 0; i < 4; ++i) {
    Op& op = steady.ops.emplace_back();
    op.kind = OpKind::optimizer;
    op.unit = 1;
  }
  run.schedules.steps.push_back(steady);
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].cause, Cause::link_bound);
  EXPECT_EQ(r.causes[0].unit, "3");
  EXPECT_EQ(r.causes[0].op, "all_gather 3");
}

TEST(CauseReport, LossesToOneOpAddUpOverSchedules) {
  // The middle third by length: unit 3 loses 40 + 40 ns at two indices, unit 4 60 ns at one of them.
  HandRun run(2);
  for (const std::int64_t at : {0, 1000, 2000}) add_gather_step(run, at, 2, 110, 0);
  add_gather_step(run, 3000, 3, 140, 0);
  add_gather_step(run, 4000, 4, 160, 1);
  add_gather_step(run, 5000, 3, 140, 1);
  for (const std::int64_t at : {6000, 7000, 8000}) add_gather_step(run, at, 2, 300, 0);
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].unit, "3");
}

TEST(CauseReport, CausesPartitionTheStalledTimeOfTheMetrics) {
  HandRun run(2);
  for (int s = 0; s < 7; ++s) add_gather_step(run, 1000 * s, 2 + s % 3, 120 + 13 * ((s * 5) % 7), s % 2);
  const CauseReport r = report(run);
  const RunMetrics m = run_metrics(run.view(), plan::Groups(plan::Mesh{2, 1}), 1);
  double sum = r.small_ms;
  for (const CauseShare& c : r.causes) sum += c.ms;
  EXPECT_NEAR(sum, r.stalled_ms, 1e-12);
  EXPECT_NEAR(r.stalled_ms, m.exposed_comm_ms + m.exposed_copy_ms + m.idle_ms, 1e-12);
  EXPECT_DOUBLE_EQ(r.step_ms, m.step_ms.median);
}

TEST(CauseReport, OneRankHasNoOneToWaitFor) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 60});
  run.forward({80, 100, 80});
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].cause, Cause::host_bound);
  EXPECT_EQ(r.causes[0].late_rank, -1);
  EXPECT_NEAR(r.causes[0].share_pct, 20, 1e-9);
}

TEST(CauseReport, NothingStalledIsNothingReported) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 100});
  const CauseReport r = report(run);
  EXPECT_TRUE(r.causes.empty());
  EXPECT_EQ(r.stalled_ms, 0);
  EXPECT_TRUE(r.example.empty());
}

}  // namespace
}  // namespace fsdpbench::account
