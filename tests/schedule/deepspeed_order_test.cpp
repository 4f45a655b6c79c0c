// The orders of DeepSpeed, as its rules give them for four equal units and a small root: what each hook gathers, what
// is freed, what is reduced when. A schedule that differs by one position fails here.
#include <gtest/gtest.h>

#include <map>

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

TEST(DeepSpeedZ3Order, GrowsByRule) {
  // Each hook gathers one unit ahead; a unit with j later ones is kept if 2jU + r < 1e9, which leaves the last three;
  // two gradients fit a bucket.
  for (int blocks : {2, 5, 9}) {
    const auto unit = [](int u) { return std::to_string(u); };
    const auto kept = [&](int u) { return u >= blocks - 3; };
    std::string forward = "AGR AG0* FR";
    std::string backward = "BR";
    int next_back = blocks - 1;  // of the backward uses, as the prefetcher comes to them
    int live = 1;                // units gathered or on their way
    std::vector<bool> there(static_cast<std::size_t>(blocks), false);
    there[0] = true;
    const auto prefetch = [&]() -> std::string {
      if (static_cast<double>(live) * 218.1 + 1 >= 1000) return "";
      while (next_back >= 0 && there[static_cast<std::size_t>(next_back)]) --next_back;
      if (next_back < 0) return "";
      there[static_cast<std::size_t>(next_back)] = true;
      ++live;
      return " AG" + unit(next_back) + "*";
    };
    for (int u = 0; u < blocks; ++u) {
      if (u + 1 < blocks) {
        forward += " AG" + unit(u + 1) + "*";
        there[static_cast<std::size_t>(u) + 1] = true;
        ++live;
      } else {
        forward += prefetch();
      }
      forward += " F" + unit(u);
      if (kept(u)) continue;
      forward += " f" + unit(u);
      there[static_cast<std::size_t>(u)] = false;
      --live;
    }
    backward = prefetch().substr(0) + " BR";
    std::vector<std::string> bucket;
    const auto flush = [&] {
      std::string text;
      for (auto g = bucket.rbegin(); g != bucket.rend(); ++g) text += (text.empty() ? "" : ",") + *g;
      const std::string all = bucket.size() == 1 ? " RS" + text : " RS{" + text + "}";
      bucket.clear();
      return all;
    };
    for (int u = blocks - 1; u >= 0; --u) {
      if (u < blocks) backward += prefetch();
      backward += " B" + unit(u);
      if (bucket.size() == 2) backward += flush();
      bucket.push_back(unit(u));
      backward += " f" + unit(u);
      --live;
    }
    bucket.insert(bucket.begin(), "R");
    EXPECT_EQ(order(z3(218, blocks)), forward + " |" + backward + flush() + " fR") << blocks;
  }
}

TEST(DeepSpeedZ3Order, UnitsLargerThanTheBucketGrowByRule) {
  // With 400 M the last two are kept, the prefetcher is two units ahead of backward, and no two gradients fit a bucket.
  for (int blocks : {2, 5, 9}) {
    const int last = blocks - 1;
    std::string forward = "AGR AG0* FR";
    for (int u = 0; u < last; ++u) {
      forward += name("AG", u + 1, "*") + name("F", u) + (u < last - 1 ? name("f", u) : "");
    }
    if (last >= 2) forward += name("AG", last - 2, "*");
    const std::string backward = backwards(blocks, [&](int u) {
      return (u < last && u >= 2 ? name("AG", u - 2, "*") : "") + name("B", u) + (u < last ? name("RS", u + 1) : "") +
             name("f", u);
    });
    const std::string expected = forward + name("F", last) + " | BR" + backward + " RS{0,R} fR";
    EXPECT_EQ(order(z3(400, blocks)), expected);
    config::RunConfig hpz = sized("deepspeed-z3-hpz", 400, blocks);
    hpz.fsdp.reshard_after_forward.group = 2;
    EXPECT_EQ(order(hpz), expected);  // over other ranks, in the same order
  }
}

TEST(DeepSpeedZ3Order, WithoutReuseItGrowsByRule) {
  for (int blocks : {2, 5, 9}) {
    const int last = blocks - 1;
    config::RunConfig c = z3(218, blocks);
    const std::int64_t unit = unit_numel(c);
    c.fsdp.max_reuse_distance = 0;
    c.fsdp.reduce_bucket = unit;
    const auto reduced = [&](int u) { return u < last ? name("RS", u + 1) : ""; };

    // A hook gathers a unit: forward's last one and the root's of backward are two and three units ahead.
    std::string forward = "AGR AG0* FR";
    for (int u = 0; u < last; ++u) forward += name("AG", u + 1, "*") + name("F", u) + name("f", u);
    std::string backward = " fR | AGR" + (last >= 2 ? name("AG", last - 2, "*") : "") + " BR";
    backward += backwards(blocks, [&](int u) {
      return (u >= 3 ? name("AG", u - 3, "*") : "") + name("B", u) + reduced(u) + name("f", u);
    });
    EXPECT_EQ(order(c), forward + name("AG", last - 1, "*") + name("F", last) + backward + " RS0 RSR fR");

    // None does: all on demand.
    config::RunConfig none = c;
    none.fsdp.forward_prefetch.elements = none.fsdp.backward_prefetch.elements = 0;
    forward = "AGR FR";
    for (int u = 0; u < blocks; ++u) forward += name("AG", u) + name("F", u) + name("f", u);
    backward = backwards(blocks, [&](int u) { return name("AG", u) + name("B", u) + reduced(u) + name("f", u); });
    EXPECT_EQ(order(none), forward + " fR | AGR BR" + backward + " RS0 RSR fR");

    // A hook could gather two, but two are all that may live.
    config::RunConfig two = c;
    two.fsdp.forward_prefetch.elements = two.fsdp.backward_prefetch.elements = 2 * unit;
    two.fsdp.max_live_parameters = 2 * unit + plan::make_plan(c).units[0].layout.parameter_numel();
    forward = "AGR AG{0,1}* FR F0 f0";
    for (int u = 1; u < last; ++u) forward += name("AG", u + 1, "*") + name("F", u) + name("f", u);
    backward = backwards(blocks, [&](int u) {
      return (u < last && u >= 1 ? name("AG", u - 1, "*") : "") + name("B", u) + reduced(u) + name("f", u);
    });
    EXPECT_EQ(order(two),
              forward + name("AG", last - 1, "*") + name("F", last) + " fR | AGR BR" + backward + " RS0 RSR fR");
  }
}

TEST(DeepSpeedZ12Order, OneGatherAfterTheStepAndBucketsOfAllReduces) {
  EXPECT_EQ(order(sized("deepspeed-z2", 218)), "FR F0 F1 F2 F3 | BR B3 B2 B1 AR{2,3} B0 AR{0,1,R} step AG{0,1,2,3,R}");
  EXPECT_EQ(order(sized("deepspeed-z1", 218)), "FR F0 F1 F2 F3 | BR B3 B2 B1 B0 AR{0,1,R} AR{2,3} step AG{0,1,2,3,R}");
}

TEST(DeepSpeedZ12Order, ExplainShowsTheGatherAfterTheStep) {
  const testing::ScheduleCase c = testing::make_case(sized("deepspeed-z2", 218));
  EXPECT_EQ(collective_order(c.plan, c.schedules.steady()), "| AR{2,3} AR{0,1,R} step AG{0,1,2,3,R}");
}

TEST(DeepSpeedZ12Order, GrowsByRule) {
  // Two gradients of 218 M fit a bucket of 500 M; the root goes with what is left. Stage 1 begins with it.
  for (int blocks : {2, 5, 9}) {
    std::string forward = "FR", ready, reduced, together, all;
    std::vector<std::string> buckets;
    for (int u = 0; u < blocks; ++u) forward += " F" + std::to_string(u);
    for (int u = blocks - 1; u >= 0; u -= 2) {
      buckets.push_back(u > 0 ? " AR{" + std::to_string(u - 1) + "," + std::to_string(u) : " AR{0");
      buckets.back() += u <= 1 ? ",R}" : "}";
    }
    for (int u = blocks - 1, i = 0; u >= 0; --u, ++i) {
      ready += " B" + std::to_string(u);
      reduced += " B" + std::to_string(u);
      if (i > 0 && i % 2 == 0) reduced += buckets[static_cast<std::size_t>(i / 2 - 1)];
    }
    for (int u = 1; u < blocks; u += 2) {
      const std::string first = std::to_string(u - 1), second = std::to_string(u);
      together += " AR{" + first + "," + second + (u == 1 ? ",R}" : "}");
    }
    if (blocks % 2 == 1) together += " AR" + std::to_string(blocks - 1);
    for (int u = 0; u < blocks; ++u) all += std::to_string(u) + ",";
    const std::string step = " step AG{" + all + "R}";
    EXPECT_EQ(order(sized("deepspeed-z2", 218, blocks)), forward + " | BR" + reduced + buckets.back() + step);
    EXPECT_EQ(order(sized("deepspeed-z1", 218, blocks)), forward + " | BR" + ready + together + step);
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
