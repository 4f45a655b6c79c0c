// fsdp.cast_in_optimizer as a schedule: nothing is cast for a gather, the update writes what gathers read.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/memory_walk.h"
#include "support/check_schedules.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::Layout;
using testing::count;

testing::ScheduleCase low_case(bool cast_in_optimizer, Layout layout, int ranks,
                               config::Strategy strategy = config::Strategy::full_shard) {
  config::RunConfig c = testing::decoder_config(3, strategy == config::Strategy::no_shard ? 1 : ranks,
                                                strategy == config::Strategy::no_shard ? ranks : 1);
  c.fsdp.cast_in_optimizer = cast_in_optimizer;
  c.fsdp.layout = layout;
  c.fsdp.strategy = strategy;
  c.fsdp.param_dtype = DType::bf16;
  return testing::make_case(c);
}

BufferRole role(const Schedule& schedule, BufferId id) { return schedule.buffers[static_cast<std::size_t>(id)].role; }

TEST(CastInOptimizer, FlatGathersReadWhatTheUpdateWroteAndCastNothing) {
  const testing::ScheduleCase without = low_case(false, Layout::flat, 4), with = low_case(true, Layout::flat, 4);
  EXPECT_GT(count(without.schedules.steady(), OpKind::cast_shard), 4);
  for (const Schedule& step : with.schedules.steps) {
    EXPECT_EQ(count(step, OpKind::cast_shard), 0);
    for (const Op& op : step.ops) {
      if (op.kind == OpKind::all_gather) {
        EXPECT_EQ(role(step, op.collective()->input), BufferRole::device_shard);
      } else if (const auto* update = std::get_if<Update>(&op.work)) {
        ASSERT_NE(update->rounded, kNoBuffer);
        EXPECT_EQ(role(step, update->rounded), BufferRole::device_shard);
        EXPECT_EQ(step.buffers[static_cast<std::size_t>(update->rounded)].unit, op.unit);
        EXPECT_EQ(std::ranges::count(op.operands().writes, update->rounded), 1) << "checks and costs see it";
      }
    }
  }
  EXPECT_EQ(count(with.schedules.steady(), OpKind::all_gather), count(without.schedules.steady(), OpKind::all_gather));
}

TEST(CastInOptimizer, PerParameterCopiesReadHalfTheBytes) {
  const testing::ScheduleCase with = low_case(true, Layout::per_param, 4);
  int copies = 0;
  for (const Op& op : with.schedules.steady().ops) {
    if (op.kind != OpKind::copy_in) continue;
    EXPECT_EQ(role(with.schedules.steady(), std::get<LayoutCopy>(op.work).from), BufferRole::device_shard);
    ++copies;
  }
  EXPECT_GT(copies, 3);
}

TEST(CastInOptimizer, ARankThatHasAllComputesWithWhatTheUpdateWrote) {
  for (const config::Strategy strategy : {config::Strategy::full_shard, config::Strategy::no_shard}) {
    const int ranks = strategy == config::Strategy::no_shard ? 2 : 1;
    const testing::ScheduleCase without = low_case(false, Layout::flat, ranks, strategy),
                                with = low_case(true, Layout::flat, ranks, strategy);
    EXPECT_GT(count(without.schedules.steady(), OpKind::cast_shard), 3);
    EXPECT_EQ(count(with.schedules.steady(), OpKind::cast_shard), 0);
    for (const Op& op : with.schedules.steady().ops) {
      const auto* forward = std::get_if<Forward>(&op.work);
      if (forward == nullptr) continue;
      EXPECT_EQ(role(with.schedules.steady(), forward->parameters), BufferRole::device_shard);
    }
  }
}

TEST(CastInOptimizer, CostsAShardInTheComputeDtypeAndIsRaceFree) {
  for (const Layout layout : {Layout::flat, Layout::per_param}) {
    for (const int ranks : {1, 4}) {
      const testing::ScheduleCase c = low_case(true, layout, ranks);
      EXPECT_TRUE(check_schedules(c.schedules).empty());
      std::int64_t kept = 0, shards = 0;
      for (const Buffer& buffer : c.schedules.steady().buffers) {
        if (buffer.role == BufferRole::device_shard) kept += buffer.bytes;
      }
      for (const plan::Unit& unit : c.plan.units) shards += unit.layout.shard_numel;
      EXPECT_EQ(kept, 2 * shards);
    }
  }
}

TEST(CastInOptimizer, HasNothingToDoForFp32) {
  config::RunConfig c = testing::decoder_config(3, 4);
  const testing::ScheduleCase without = testing::make_case(c);
  c.fsdp.cast_in_optimizer = true;
  const testing::ScheduleCase with = testing::make_case(c);
  EXPECT_EQ(with.schedules.steady().ops, without.schedules.steady().ops);
  EXPECT_EQ(with.schedules.steady().buffers, without.schedules.steady().buffers);
}

}  // namespace
}  // namespace fsdpbench::schedule
