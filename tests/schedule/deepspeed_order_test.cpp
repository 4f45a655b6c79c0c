// The orders of DeepSpeed, as its rules give them for four equal units and a small root: what each hook gathers, what
// is freed, what is reduced when. A schedule that differs by one position fails here.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "support/engine_orders.h"

namespace fsdpbench::schedule {
namespace {

config::RunConfig z3(std::int64_t millions, int blocks = 4) { return sized("deepspeed-z3", millions, blocks); }

TEST(DeepSpeedZ3Order, SmallModelsFreeNothingInForward) {
  EXPECT_EQ(order(z3(100)), "AGR AG0* FR AG1* F0 AG2* F1 AG3* F2 F3 | BR B3 f3 B2 f2 B1 f1 B0 f0 RS{0,1,2,3,R} fR");
}

TEST(DeepSpeedZ3Order, TheReuseDistanceKeepsTheLastUnits) {
  EXPECT_EQ(order(z3(218)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 AG3* F2 AG0* F3 | BR B3 f3 B2 f2 B1 RS{2,3} f1 B0 f0 RS{0,1,R} fR");
}

TEST(DeepSpeedZ3Order, GradientsNearTheBucketGoOneByOneAndOneUnitLate) {
  EXPECT_EQ(order(z3(400)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 AG1* F3 | BR B3 f3 AG0* B2 RS3 f2 B1 RS2 f1 B0 RS1 f0"
            " RS{0,R} fR");
}

TEST(DeepSpeedZ3Order, WithoutReusePrefetchingFollowsTheTraceIntoBackward) {
  config::RunConfig c = z3(218);
  c.fsdp.max_reuse_distance = 0;
  c.fsdp.reduce_bucket = unit_numel(c);
  EXPECT_EQ(order(c),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 AG2* F3 fR | AGR AG1* BR AG0* B3 f3 B2 RS3 f2 B1 RS2 f1"
            " B0 RS1 f0 RS0 RSR fR");
}

TEST(DeepSpeedZ3Order, MaxLiveParametersBoundsTheWindow) {
  config::RunConfig c = z3(218);
  const std::int64_t unit = unit_numel(c);
  c.fsdp.max_reuse_distance = 0;
  c.fsdp.reduce_bucket = unit;
  c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 2 * unit;
  c.fsdp.max_live_parameters = 2 * unit + plan::make_plan(c).units[0].layout.parameter_numel();
  // Unit 3 is still there in backward: the prefetcher of its forward has passed over its backward use.
  EXPECT_EQ(order(c),
            "AGR AG{0,1}* FR F0 f0 AG2* F1 f1 AG3* F2 f2 AG2* F3 fR | AGR BR B3 f3 AG1* B2 RS3 f2 AG0* B1 RS2 f1"
            " B0 RS1 f0 RS0 RSR fR");
}

TEST(DeepSpeedZ3Order, WithoutPrefetchingEveryGatherIsOnDemand) {
  config::RunConfig c = z3(218);
  c.fsdp.max_reuse_distance = 0;
  c.fsdp.reduce_bucket = unit_numel(c);
  c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 0;
  EXPECT_EQ(order(c),
            "AGR FR AG0 F0 f0 AG1 F1 f1 AG2 F2 f2 AG3 F3 f3 fR | AGR BR AG3 B3 f3 AG2 B2 RS3 f2 AG1 B1 RS2 f1"
            " AG0 B0 RS1 f0 RS0 RSR fR");
}

TEST(DeepSpeedZ3Order, TheFirstStepLearnsTheOrderAndFreesEverything) {
  const testing::ScheduleCase c = testing::make_case(z3(218));
  EXPECT_EQ(host_order(c.plan, c.schedules.of_step(0)),
            "AGR FR AG0 F0 f0 AG1 F1 f1 AG2 F2 f2 AG3 F3 f3 fR | AGR BR AG3 B3 f3 AG2 B2 f2 AG1 B1 RS{2,3} f1"
            " AG0 B0 f0 RS{0,1,R} fR");
}

TEST(DeepSpeedZ3Order, AUnitLargerThanABucketIsDividedWhereItLies) {
  config::RunConfig c = z3(218);
  c.fsdp.reduce_bucket = 1;
  c.fsdp.gradient_scaling = config::GradientScaling::pre_post_divide;
  const testing::ScheduleCase made = testing::make_case(c);
  std::vector<float> factors;
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind == OpKind::reduce_cast && op.unit == 2) factors.push_back(std::get<Cast>(op.work).factor);
  }
  EXPECT_EQ(factors, std::vector{gradient_factors(c.fsdp, made.plan.mesh).before});
}

TEST(DeepSpeedZ3Order, AGatherForBackwardIsNoReasonToReduceEarlier) {
  config::RunConfig c = z3(218);
  c.fsdp.max_reuse_distance = 0;
  c.fsdp.gradients_after_views = true;
  const testing::ScheduleCase made = testing::make_case(c);
  std::map<int, int> hooks;
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind == OpKind::post_backward) ++hooks[op.unit];
  }
  for (const auto& [unit, count] : hooks) EXPECT_EQ(count, 1) << unit;
}

TEST(DeepSpeedZ12Order, OneGatherAfterTheStepAndBucketsOfAllReduces) {
  EXPECT_EQ(order(sized("deepspeed-z2", 218)), "FR F0 F1 F2 F3 | BR B3 B2 B1 AR{2,3} B0 AR{0,1,R} step AG{0,1,2,3,R}");
  EXPECT_EQ(order(sized("deepspeed-z1", 218)), "FR F0 F1 F2 F3 | BR B3 B2 B1 B0 AR{0,1,R} AR{2,3} step AG{0,1,2,3,R}");
}

TEST(DeepSpeedZ12Order, ExplainShowsTheGatherAfterTheStep) {
  const testing::ScheduleCase c = testing::make_case(sized("deepspeed-z2", 218));
  EXPECT_TRUE(host_order(c.plan, c.schedules.of_step(0)).starts_with("AG{0,1,2,3,R} FR F0 ")) << "for the first one";
  EXPECT_EQ(collective_order(c.plan, c.schedules.steady()), "| AR{2,3} AR{0,1,R} step AG{0,1,2,3,R}");
}

/// Other sizes of the same jobs: two blocks and five.
TEST(DeepSpeedOrder, OfOtherSizes) {
  for (const auto& [blocks, two_fit, none_fit, reduced, together] :
       {std::tuple{2, "AGR AG0* FR AG1* F0 F1 | BR B1 f1 B0 f0 RS{0,1,R} fR",
                   "AGR AG0* FR AG1* F0 F1 | BR B1 f1 B0 RS1 f0 RS{0,R} fR",
                   "FR F0 F1 | BR B1 B0 AR{0,1,R} step AG{0,1,R}", "FR F0 F1 | BR B1 B0 AR{0,1,R} step AG{0,1,R}"},
        {5,
         "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 AG4* F3 AG1* F4 | AG0* BR B4 f4 B3 f3 B2 RS{3,4} f2 B1 f1 B0 "
         "RS{1,2} f0 RS{0,R} fR",
         "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 AG4* F3 AG2* F4 | BR B4 f4 AG1* B3 RS4 f3 AG0* B2 RS3 f2 B1 RS2 "
         "f1 B0 RS1 f0 RS{0,R} fR",
         "FR F0 F1 F2 F3 F4 | BR B4 B3 B2 AR{3,4} B1 B0 AR{1,2} AR{0,R} step AG{0,1,2,3,4,R}",
         "FR F0 F1 F2 F3 F4 | BR B4 B3 B2 B1 B0 AR{0,1,R} AR{2,3} AR4 step AG{0,1,2,3,4,R}"}}) {
    EXPECT_EQ(order(z3(218, blocks)), two_fit);
    EXPECT_EQ(order(z3(400, blocks)), none_fit);
    config::RunConfig hpz = sized("deepspeed-z3-hpz", 400, blocks);
    hpz.fsdp.reshard_after_forward.group = 2;
    EXPECT_EQ(order(hpz), none_fit) << "over other ranks, in the same order";
    EXPECT_EQ(order(sized("deepspeed-z2", 218, blocks)), reduced);
    EXPECT_EQ(order(sized("deepspeed-z1", 218, blocks)), together);
  }
}

/// Without reuse: a unit ahead, on demand, and two ahead where two are all that may live.
TEST(DeepSpeedOrder, OfOtherSizesWithoutReuse) {
  for (const auto& [blocks, one, none, two_live] :
       {std::tuple{2, "AGR AG0* FR AG1* F0 f0 AG0* F1 fR | AGR BR B1 f1 B0 RS1 f0 RS0 RSR fR",
                   "AGR FR AG0 F0 f0 AG1 F1 f1 fR | AGR BR AG1 B1 f1 AG0 B0 RS1 f0 RS0 RSR fR",
                   "AGR AG{0,1}* FR F0 f0 AG0* F1 fR | AGR BR B1 f1 B0 RS1 f0 RS0 RSR fR"},
        {5,
         "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 AG4* F3 f3 AG3* F4 fR | AGR AG2* BR AG1* B4 f4 AG0* B3 RS4 f3 "
         "B2 RS3 f2 B1 RS2 f1 B0 RS1 f0 RS0 RSR fR",
         "AGR FR AG0 F0 f0 AG1 F1 f1 AG2 F2 f2 AG3 F3 f3 AG4 F4 f4 fR | AGR BR AG4 B4 f4 AG3 B3 RS4 f3 AG2 B2 RS3 f2 "
         "AG1 B1 RS2 f1 AG0 B0 RS1 f0 RS0 RSR fR",
         "AGR AG{0,1}* FR F0 f0 AG2* F1 f1 AG3* F2 f2 AG4* F3 f3 AG3* F4 fR | AGR BR B4 f4 AG2* B3 RS4 f3 AG1* B2 RS3 "
         "f2 AG0* B1 RS2 f1 B0 RS1 f0 RS0 RSR fR"}}) {
    config::RunConfig c = z3(218, blocks);
    const std::int64_t unit = unit_numel(c);
    c.fsdp.max_reuse_distance = 0;
    c.fsdp.reduce_bucket = unit;
    EXPECT_EQ(order(c), one);
    c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 0;
    EXPECT_EQ(order(c), none);
    c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 2 * unit;
    c.fsdp.max_live_parameters = 2 * unit + plan::make_plan(c).units[0].layout.parameter_numel();
    EXPECT_EQ(order(c), two_live);
  }
}

TEST(DeepSpeedZ12Order, Z1ReducesAtTheAccumulationBoundaryOnly) {
  config::RunConfig c = sized("deepspeed-z1", 400);
  c.train.accumulate = 2;
  EXPECT_EQ(order(c),
            "FR F0 F1 F2 F3 | BR B3 B2 B1 B0 || FR F0 F1 F2 F3 | BR B3 B2 B1 B0 AR{0,R} AR1 AR2 AR3"
            " step AG{0,1,2,3,R}");
  c = sized("deepspeed-z2", 400);
  c.train.accumulate = 2;
  EXPECT_EQ(order(c),
            "FR F0 F1 F2 F3 | BR B3 B2 AR3 B1 AR2 B0 AR1 AR{0,R} || FR F0 F1 F2 F3 | BR B3 B2 AR3 B1 AR2"
            " B0 AR1 AR{0,R} step AG{0,1,2,3,R}");
}

TEST(DeepSpeedHpzOrder, BackwardGathersOverTheNodeAndTheHostWaitsForEachSecondaryShard) {
  config::RunConfig c = sized("deepspeed-z3-hpz", 400);
  c.fsdp.reshard_after_forward.group = 2;
  EXPECT_EQ(order(c), order(z3(400)));
  const testing::ScheduleCase made = testing::make_case(c);
  std::string gathers;
  int waits = 0;
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind == OpKind::all_gather) gathers += op.group() == Group::reshard ? "n" : "W";
    if (op.kind != OpKind::host_wait) continue;
    for (const Op& kept : made.schedules.steady().ops) {
      if (kept.kind == OpKind::keep_group_shard && kept.record == op.waits.front().event) ++waits;
    }
  }
  EXPECT_EQ(gathers, "WWWWWnn");  // units 1 and 0 were freed in forward
  EXPECT_EQ(waits, 2);
}

}  // namespace
}  // namespace fsdpbench::schedule
