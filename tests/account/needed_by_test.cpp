#include "account/step_view.h"

#include <gtest/gtest.h>

#include "account/step_breakdown.h"
#include "schedule/print_schedule.h"
#include "support/random_config.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;

/// "forward blocks.0" of the collective with this name; "none" if nothing of its step needs it.
std::string need_of(const testing::ScheduleCase& c, const std::string& name) {
  const schedule::Schedule& schedule = c.schedules.steady();
  const std::vector<int> needed = needed_by(schedule);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (schedule::op_name(c.plan, schedule.ops[i]) != name) continue;
    return needed[i] < 0 ? "none" : schedule::op_name(c.plan, schedule.ops[static_cast<std::size_t>(needed[i])]);
  }
  return "no such op";
}

TEST(NeededBy, GathersAreForTheirUnitAndReductionsForTheOptimizer) {
  for (const config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
    config::RunConfig config = testing::decoder_config(2, 2);
    config.fsdp.layout = layout;
    const testing::ScheduleCase c = testing::make_case(config);
    EXPECT_EQ(need_of(c, "all_gather 0"), "forward blocks.0");
    EXPECT_EQ(need_of(c, "all_gather 1"), "forward blocks.1");
    EXPECT_EQ(need_of(c, "reduce_scatter 1"), "optimizer 1");
  }
}

TEST(NeededBy, AReductionOverTwoAxesLeadsFromOneCollectiveToTheNext) {
  config::RunConfig config = testing::decoder_config(2, 2, 2);
  config.fsdp.strategy = config::Strategy::hybrid_shard;
  const testing::ScheduleCase c = testing::make_case(config);
  EXPECT_EQ(need_of(c, "reduce_scatter 1"), "all_reduce 1");
  EXPECT_EQ(need_of(c, "all_reduce 1"), "optimizer 1");
}

TEST(NeededBy, AnOffloadedGradientIsForTheHostsUpdate) {
  for (const config::CpuOffload offload : {config::CpuOffload::optimizer, config::CpuOffload::all}) {
    config::RunConfig config = testing::decoder_config(2, 4);
    config.fsdp.cpu_offload = offload;
    const testing::ScheduleCase c = testing::make_case(config);
    EXPECT_EQ(need_of(c, "all_gather 1"), "forward blocks.1");
    EXPECT_EQ(need_of(c, "reduce_scatter 1"), "optimizer 1");
  }
}

TEST(NeededBy, NamesLaterComputationsAndCollectivesOnly) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const config::RunConfig config = testing::random_config_of_round(random, round);
    const testing::ScheduleCase c = testing::make_case(config);
    for (const schedule::Schedule& schedule : c.schedules.steps) {
      const std::vector<int> needed = needed_by(schedule);
      ASSERT_EQ(needed.size(), schedule.ops.size());
      for (std::size_t i = 0; i < needed.size(); ++i) {
        const Op& op = schedule.ops[i];
        // Nobody gathers or reduces for nothing, but some gather at a step's end for the next one, and FSDP2 gathers
        // across microbatches what it then throws away (docs/pytorch.md).
        const bool for_the_next = op.phase == schedule::Phase::optimizer || !config.fsdp.wait_each_backward;
        if (needed[i] >= 0 || op.kind != OpKind::all_gather || !for_the_next) {
          EXPECT_EQ(needed[i] > static_cast<int>(i), op.is_collective())
              << schedule::op_list(c.plan, schedule) << "op " << i;
        }
        if (needed[i] < 0) continue;
        const OpClass reader = classify(schedule.ops[static_cast<std::size_t>(needed[i])]);
        EXPECT_TRUE(reader == OpClass::computation || reader == OpClass::host_update ||
                    reader == OpClass::communication);
      }
    }
  }
}

}  // namespace
}  // namespace fsdpbench::account
