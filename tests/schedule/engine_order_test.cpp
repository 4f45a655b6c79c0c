// The orders of Megatron-FSDP and compiled FSDP, as their rules give them for four equal units and a small root. A
// schedule that differs by one position fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "support/engine_orders.h"

namespace fsdpbench::schedule {
namespace {

using config::Prefetch;

TEST(MegatronV1Order, AWindowLaunchedFromTheFirstUnitToTheLast) {
  // Five hundred million elements beyond the current unit: three of 218. Backward's first gather is queued behind its
  // own prefetches.
  EXPECT_EQ(order(sized("megatron-v1", 218)),
            "AGR AG0* AG1* AG2* FR AG3* F0 f0 F1 f1 F2 f2 F3 f3 | BR AG0* AG1* AG2* AG3 B3 f3 RS3 B2 f2 RS2 B1 f1 RS1"
            " B0 f0 RS0 fR RSR");
}

TEST(MegatronV1Order, DoubleBufferKeepsTwoUnits) {
  config::RunConfig c = sized("megatron-v1", 218);
  c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::buffers, 2, 0};
  EXPECT_EQ(order(c),
            "AGR AG0* AG1* FR F0 f0 AG2* F1 f1 AG3* F2 f2 F3 f3 | BR AG2* AG3 B3 f3 RS3 AG1* B2 f2 RS2 AG0* B1 f1 RS1"
            " B0 f0 RS0 fR RSR");
}

TEST(MegatronV1Order, BytesOfTwoUnitsKeepTwoUnits) {
  config::RunConfig buffers = sized("megatron-v1", 218), bytes = buffers;
  buffers.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::buffers, 2, 0};
  bytes.fsdp.all_gather_limit = {
      config::AllGatherLimit::Mode::bytes, 0,
      2 * plan::make_plan(bytes).units[1].layout.gathered_numel() * size_of(bytes.fsdp.param_dtype)};
  EXPECT_EQ(order(bytes), order(buffers));
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

TEST(SimpleFsdpOrder, TheNextGatherLeavesBeforeThisOneIsWaitedFor) {
  EXPECT_EQ(order(sized("simplefsdp", 218)),
            "AGR AG0* FR AG1* F0 f0 AG2* F1 f1 AG3* F2 f2 AGT* F3 f3 FT fT | AGT* AG3* BT fT RST AG2* B3 f3 RS3"
            " AG1* B2 f2 RS2 AG0* B1 f1 RS1 B0 f0 RS0 BR fR RSR");
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

/// Other sizes of the same jobs: two blocks and five.
TEST(EngineOrder, OfOtherSizes) {
  using Row = std::tuple<const char*, int, const char*>;
  for (const auto& [preset, blocks, line] :
       {Row{"megatron-v1", 2, "AGR AG0* AG1* | AG0* AG1 RS1 RS0 RSR"},
        {"megatron-v1", 5, "AGR AG0* AG1* AG2* AG3* AG4* | AG1* AG2* AG3* AG4 RS4 AG0* RS3 RS2 RS1 RS0 RSR"},
        {"megatron-v2", 2, "AGR AG0* AG1* | AGR AG1* AG0* RS1 RS0 RSR"},
        {"megatron-v2", 5, "AGR AG0* AG1* AG2* AG3* AG4* | AGR AG4* AG3* RS4 AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR"},
        {"simplefsdp", 2, "AGR AG0* AG1* AGT* | AGT* AG1* RST AG0* RS1 RS0 RSR"},
        {"simplefsdp", 5,
         "AGR AG0* AG1* AG2* AG3* AG4* AGT* | AGT* AG4* RST AG3* RS4 AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR"},
        {"xla", 2, "AGR AG0 AG1 | AG1 AG0 RS1 RS0 RSR"},
        {"xla", 5, "AGR AG0 AG1 AG2 AG3 AG4 | AG4 AG3 RS4 AG2 RS3 AG1 RS2 AG0 RS1 RS0 RSR"},
        {"xla-pipelined", 2, "AGR AG0* AG1* | AG1* AG0* RS1 RS0 RSR"},
        {"xla-pipelined", 5, "AGR AG0* AG1* AG2* AG3* AG4* | AG4* AG3* AG2* RS4 AG1* RS3 AG0* RS2 RS1 RS0 RSR"}}) {
    EXPECT_EQ(collectives(sized(preset, 218, blocks)), line) << preset;
  }
  for (const auto& [blocks, buffers, none, window] :
       {std::tuple{2, "AGR AG0* AG1* | AG0* AG1 RS1 RS0 RSR", "AGR AG0 AG1 | AGR AG1 RS1 AG0 RS0 RSR",
                   "AGR AG0* AG1* | AGR AG1* AG0* RS1 RS0 RSR"},
        {5, "AGR AG0* AG1* AG2* AG3* AG4* | AG3* AG4 RS4 AG2* RS3 AG1* RS2 AG0* RS1 RS0 RSR",
         "AGR AG0 AG1 AG2 AG3 AG4 | AGR AG4 RS4 AG3 RS3 AG2 RS2 AG1 RS1 AG0 RS0 RSR",
         "AGR AG0* AG1* AG2* AG3* AG4* | AGR AG4* AG3* AG2* RS4 AG1* RS3 AG0* RS2 RS1 RS0 RSR"}}) {
    config::RunConfig c = sized("megatron-v1", 218, blocks);
    c.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::buffers, 2, 0};
    EXPECT_EQ(collectives(c), buffers);
    c = sized("megatron-v2", 218, blocks);
    c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 0};
    EXPECT_EQ(collectives(c), none);
    c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 2 * unit_numel(c);
    EXPECT_EQ(collectives(c), window);
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

}  // namespace
}  // namespace fsdpbench::schedule
