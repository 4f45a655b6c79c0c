// The orders of engines other than PyTorch's, as their rules give them for four equal units and a small root: what each
// hook gathers, what is freed, what is reduced when. A schedule that differs by one position fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "schedule/print_schedule.h"
#include "support/presets.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::Prefetch;

/// Units of about so many million elements, so that the engines' own defaults decide.
config::RunConfig sized(const std::string& preset, std::int64_t millions, int blocks = 4) {
  config::RunConfig c = testing::decoder_config(blocks, 4);
  c.model.width = 4096;
  c.model.heads = 32;
  c.model.kv_heads = 8;
  const std::int64_t attention = (2 * 4096 + 2 * 1024) * 4096 + 2 * 4096;
  c.model.ffn_width = (millions * 1'000'000 - attention) / (3 * 4096) + 1;
  return testing::with_preset(c, preset);
}

std::string order(const config::RunConfig& config) {
  const testing::ScheduleCase c = testing::make_case(config);
  return host_order(c.plan, c.schedules.steady());
}

std::int64_t unit_numel(const config::RunConfig& config) {
  return plan::make_plan(config).units[1].layout.parameter_numel();
}

config::RunConfig z3(std::int64_t millions, int blocks = 4) { return sized("deepspeed-z3", millions, blocks); }

TEST(DeepSpeedZ3Order, SmallModelsFreeNothingInForward) {
  EXPECT_EQ(order(z3(100)), "AGR AG0* FR AG1* F0 AG2* F1 AG3* F2 F3 | BR B3 f3 B2 f2 B1 f1 B0 f0 fR RS{0,1,2,3,R}");
}

TEST(DeepSpeedZ3Order, TheReuseDistanceKeepsTheLastUnits) {
  EXPECT_EQ(order(z3(218)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 AG3* F2 AG0* F3 | BR B3 f3 B2 f2 B1 RS{2,3} f1 B0 f0 fR RS{0,1,R}");
}

TEST(DeepSpeedZ3Order, GradientsNearTheBucketGoOneByOneAndOneUnitLate) {
  EXPECT_EQ(order(z3(400)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 AG1* F3 | BR B3 f3 AG0* B2 RS3 f2 B1 RS2 f1 B0 RS1 f0 fR"
            " RS{0,R}");
}

TEST(DeepSpeedZ3Order, WithoutReusePrefetchingFollowsTheTraceIntoBackward) {
  config::RunConfig c = z3(218);
  c.fsdp.max_reuse_distance = 0;
  c.fsdp.reduce_bucket = unit_numel(c);
  EXPECT_EQ(order(c),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 AG2* F3 fR | AGR AG1* BR AG0* B3 f3 B2 RS3 f2 B1 RS2 f1"
            " B0 RS1 f0 RS0 fR RSR");
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
            " B0 RS1 f0 RS0 fR RSR");
}

TEST(DeepSpeedZ3Order, WithoutPrefetchingEveryGatherIsOnDemand) {
  config::RunConfig c = z3(218);
  c.fsdp.max_reuse_distance = 0;
  c.fsdp.reduce_bucket = unit_numel(c);
  c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 0;
  EXPECT_EQ(order(c),
            "AGR FR AG0 F0 f0 AG1 F1 f1 AG2 F2 f2 AG3 F3 f3 fR | AGR BR AG3 B3 f3 AG2 B2 RS3 f2 AG1 B1 RS2 f1"
            " AG0 B0 RS1 f0 RS0 fR RSR");
}

TEST(DeepSpeedZ3Order, TheFirstStepLearnsTheOrderAndFreesEverything) {
  const testing::ScheduleCase c = testing::make_case(z3(218));
  EXPECT_EQ(host_order(c.plan, c.schedules.of_step(0)),
            "AGR FR AG0 F0 f0 AG1 F1 f1 AG2 F2 f2 AG3 F3 f3 fR | AGR BR AG3 B3 f3 AG2 B2 f2 AG1 B1 RS{2,3} f1"
            " AG0 B0 f0 fR RS{0,1,R}");
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
    EXPECT_EQ(order(z3(218, blocks)), forward + " |" + backward + " fR" + flush()) << blocks;
  }
}

TEST(DeepSpeedZ12Order, OneGatherAfterTheStepAndBucketsOfAllReduces) {
  EXPECT_EQ(order(sized("deepspeed-z2", 218)), "FR F0 F1 F2 F3 | BR B3 B2 B1 AR{2,3} B0 AR{0,1,R} step AG{0,1,2,3,R}");
  EXPECT_EQ(order(sized("deepspeed-z1", 218)), "FR F0 F1 F2 F3 | BR B3 B2 B1 B0 AR{2,3} AR{0,1,R} step AG{0,1,2,3,R}");
}

TEST(DeepSpeedZ12Order, ExplainShowsTheGatherAfterTheStep) {
  const testing::ScheduleCase c = testing::make_case(sized("deepspeed-z2", 218));
  EXPECT_EQ(collective_order(c.plan, c.schedules.steady()), "| AR{2,3} AR{0,1,R} step AG{0,1,2,3,R}");
}

TEST(DeepSpeedZ12Order, GrowsByRule) {
  // Two gradients of 218 M fit a bucket of 500 M; the root goes with what is left.
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
    for (const std::string& bucket : buckets) together += bucket;
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
            "FR F0 F1 F2 F3 | BR B3 B2 B1 B0 || FR F0 F1 F2 F3 | BR B3 B2 B1 B0 AR3 AR2 AR1 AR{0,R}"
            " step AG{0,1,2,3,R}");
  c = sized("deepspeed-z2", 400);
  c.train.accumulate = 2;
  EXPECT_EQ(order(c),
            "FR F0 F1 F2 F3 | BR B3 B2 AR3 B1 AR2 B0 AR1 AR{0,R} || FR F0 F1 F2 F3 | BR B3 B2 AR3 B1 AR2"
            " B0 AR1 AR{0,R} step AG{0,1,2,3,R}");
}

/// Gathers and reductions only: no computation, no frees.
std::string collectives(const config::RunConfig& config) {
  std::istringstream words(order(config));
  std::string text, word;
  while (words >> word) {
    if (word[0] == 'F' || word[0] == 'B' || word[0] == 'f') continue;
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

/// "AG3* AG2* …" for units from `first` to `last`, in either direction.
std::string each(const std::string& before, int first, int last, const std::string& after) {
  std::string text;
  for (int u = first; first <= last ? u <= last : u >= last; u += first <= last ? 1 : -1) {
    text += " " + before + std::to_string(u) + after;
  }
  return text;
}

TEST(MegatronV1Order, AWindowLaunchedFromTheFirstUnitToTheLast) {
  // Five hundred million elements beyond the current unit: three of 218. Backward's first gather is queued behind its
  // own prefetches.
  EXPECT_EQ(order(sized("megatron-v1", 218)),
            "AGR AG0* AG1* AG2* FR AG3* F0 f0 F1 f1 F2 f2 F3 f3 | BR AG0* AG1* AG2* AG3 B3 f3 RS3 B2 f2 RS2 B1 f1 RS1"
            " B0 f0 RS0 fR RSR");
}

TEST(MegatronV1Order, GrowsByRule) {
  for (int blocks : {2, 5, 9}) {
    const int ahead = std::min(3, blocks);
    std::string forward = "AGR" + each("AG", 0, ahead - 1, "*");
    for (int u = 3; u < blocks; ++u) forward += " AG" + std::to_string(u) + "*";
    std::string backward = blocks > 4 ? each("AG", blocks - 4, blocks - 2, "*") : each("AG", 0, blocks - 2, "*");
    backward += " AG" + std::to_string(blocks - 1);
    for (int u = blocks - 1; u >= 0; --u) {
      if (u < blocks - 1 && u >= 3) backward += " AG" + std::to_string(u - 3) + "*";
      backward += " RS" + std::to_string(u);
    }
    EXPECT_EQ(collectives(sized("megatron-v1", 218, blocks)), forward + " |" + backward + " RSR") << blocks;
  }
}

TEST(MegatronV1Order, DoubleBufferKeepsTwoUnits) {
  config::RunConfig c = sized("megatron-v1", 218);
  c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::buffers, 2, 0};
  EXPECT_EQ(order(c),
            "AGR AG0* AG1* FR F0 f0 AG2* F1 f1 AG3* F2 f2 F3 f3 | BR AG2* AG3 B3 f3 RS3 AG1* B2 f2 RS2 AG0* B1 f1 RS1"
            " B0 f0 RS0 fR RSR");
}

TEST(MegatronV2Order, Default) {
  EXPECT_EQ(collectives(sized("megatron-v2", 218)),
            "AGR AG0* AG1* AG2* AG3* | AGR AG3* AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR");
  EXPECT_EQ(order(sized("megatron-v2", 218)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 F3 f3 fR | AGR AG3* BR AG2* B3 f3 RS3 AG1* B2 f2 RS2 AG0*"
            " B1 f1 RS1 B0 f0 RS0 fR RSR");
}

TEST(MegatronV2Order, WithoutPrefetching) {
  config::RunConfig c = sized("megatron-v2", 218);
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 0};
  EXPECT_EQ(collectives(c), "AGR AG0 AG1 AG2 AG3 | AGR AG3 RS3 AG2 RS2 AG1 RS1 AG0 RS0 RSR");
}

TEST(MegatronV2Order, ASizedBudget) {
  config::RunConfig c = sized("megatron-v2", 218);
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 2 * unit_numel(c)};
  EXPECT_EQ(order(c),
            "AGR AG0* AG1* FR AG2* F0 f0 AG3* F1 f1 F2 f2 F3 f3 fR | AGR AG3* AG2* BR AG1* B3 f3 RS3 AG0* B2 f2 RS2"
            " B1 f1 RS1 B0 f0 RS0 fR RSR");
}

TEST(MegatronV2Order, AUnifiedStreamChangesTheLaneAndNotTheOrder) {
  config::RunConfig c = sized("megatron-v2", 218);
  const std::string two = order(c);
  c.fsdp.reduce_lane = config::ReduceLane::all_gather;
  EXPECT_EQ(order(c), two);
  const testing::ScheduleCase made = testing::make_case(c);
  for (const Op& op : made.schedules.steady().ops) {
    EXPECT_NE(op.lane, Lane::reduce_scatter) << op_name(made.plan, op);
  }
}

TEST(MegatronV2Order, GrowsByRule) {
  for (int blocks : {2, 5, 9}) {
    std::string line = "AGR" + each("AG", 0, blocks - 1, "*") + " | AGR";
    for (int u = blocks - 1; u >= 0; --u) {
      line += " AG" + std::to_string(u) + "*";
      if (u < blocks - 1) line += " RS" + std::to_string(u + 1);
    }
    EXPECT_EQ(collectives(sized("megatron-v2", 218, blocks)), line + " RS0 RSR") << blocks;
  }
}

TEST(SimpleFsdpOrder, TheNextGatherLeavesBeforeThisOneIsWaitedFor) {
  EXPECT_EQ(order(sized("simplefsdp", 218)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 AGT* F3 f3 FT fT | AGT* AG3* BT fT RST AG2* B3 f3 RS3"
            " AG1* B2 f2 RS2 AG0* B1 f1 RS1 B0 f0 RS0 BR fR RSR");
}

TEST(VeScaleOrder, IsFsdp2sWithoutItsCopies) {
  EXPECT_EQ(order(sized("vescale", 218)), order(sized("fsdp2", 218)));
  const testing::ScheduleCase made = testing::make_case(sized("vescale", 218));
  for (const Op& op : made.schedules.steady().ops) {
    EXPECT_FALSE(std::holds_alternative<LayoutCopy>(op.work)) << op_name(made.plan, op);
  }
}

TEST(XlaOrder, ReductionsRunOneIterationLate) {
  EXPECT_EQ(order(sized("xla", 218)),
            "AGR FR AG0 F0 f0 AG1 F1 f1 AG2 F2 f2 AG3 F3 f3 | BR AG3 B3 f3 AG2 RS3 B2 f2 AG1 RS2 B1 f1 AG0 RS1 B0 f0"
            " fR RS0 RSR");
}

TEST(XlaOrder, PipelinedGathersGoOneIterationAhead) {
  EXPECT_EQ(order(sized("xla-pipelined", 218)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 F3 f3 | AG3* BR AG2* B3 f3 AG1* RS3 B2 f2 AG0* RS2 B1 f1 RS1"
            " B0 f0 fR RS0 RSR");
}

TEST(CompiledOrder, GrowsByRule) {
  const auto u = [](int unit) { return std::to_string(unit); };
  for (int blocks : {2, 5, 9}) {
    const int last = blocks - 1;
    const std::string in_order = "AGR" + each("AG", 0, last, "*");
    std::string simple = in_order + " AGT* | AGT* AG" + u(last) + "* RST";
    std::string scan = "AGR" + each("AG", 0, last, "") + " | AG" + u(last);
    std::string pipelined = in_order + " | AG" + u(last) + "*";
    for (int unit = last; unit >= 0; --unit) {
      if (unit > 0) simple += " AG" + u(unit - 1) + "*";
      simple += " RS" + u(unit);
      if (unit > 0) scan += " AG" + u(unit - 1) + " RS" + u(unit);
      if (unit > 0) pipelined += " AG" + u(unit - 1) + "*";
      if (unit < last) pipelined += " RS" + u(unit + 1);
    }
    EXPECT_EQ(collectives(sized("simplefsdp", 218, blocks)), simple + " RSR") << blocks;
    EXPECT_EQ(collectives(sized("xla", 218, blocks)), scan + " RS0 RSR") << blocks;
    EXPECT_EQ(collectives(sized("xla-pipelined", 218, blocks)), pipelined + " RS0 RSR") << blocks;
    EXPECT_EQ(order(sized("vescale", 218, blocks)), order(sized("fsdp2", 218, blocks))) << blocks;
  }
}

/// The last computation on the compute lane that op number `i` is ordered after; -1 if it waits for none.
int computation_before(const Schedule& schedule, int i) {
  std::map<EventId, int> recorded;
  int last = -1, found = -1;
  for (int j = 0; j <= i; ++j) {
    const Op& op = schedule.ops[static_cast<std::size_t>(j)];
    if (j == i) {
      for (const Wait& wait : op.waits) {
        if (const auto at = recorded.find(wait.event); at != recorded.end()) found = std::max(found, at->second);
      }
    }
    if (op.kind == OpKind::forward || op.kind == OpKind::backward) last = op.module;
    if (op.lane == Lane::compute && op.record != kNoEvent) recorded[op.record] = last;
  }
  return found;
}

TEST(XlaOrder, AGatherStartsAfterTheComputationBeforeItsIteration) {
  // On demand a gather starts when the block before is over; one iteration ahead, when the one before that is.
  for (const auto& [preset, behind] : {std::pair{"xla", 1}, {"xla-pipelined", 2}}) {
    const testing::ScheduleCase c = testing::make_case(sized(preset, 218));
    const Schedule& steady = c.schedules.steady();
    int checked = 0;
    for (int i = 0; i < static_cast<int>(steady.ops.size()); ++i) {
      const Op& op = steady.ops[static_cast<std::size_t>(i)];
      if (op.kind != OpKind::all_gather || op.phase != Phase::forward || op.unit < 3) continue;
      const int module = c.plan.units[static_cast<std::size_t>(op.unit)].members.modules.front();
      EXPECT_EQ(computation_before(steady, i), module - behind) << preset << " unit " << op.unit;
      ++checked;
    }
    EXPECT_EQ(checked, 2);
  }
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
