// fsdp.cpu_offload as a schedule: what is copied when, behind what, and how many bytes the device is spared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "schedule/memory_walk.h"
#include "schedule/print_schedule.h"
#include "support/check_schedules.h"
#include "support/random_config.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::CpuOffload;
using config::Layout;

config::RunConfig with(CpuOffload offload, Layout layout = Layout::per_param, DType dtype = DType::f32) {
  config::RunConfig c = testing::decoder_config(3, 4);
  c.fsdp.cpu_offload = offload;
  c.fsdp.layout = layout;
  c.fsdp.param_dtype = dtype;
  return c;
}

/// Ops of one unit in one phase, in order, by name; those without work left out.
std::string ops_of(const testing::ScheduleCase& c, int unit, Phase phase) {
  std::string text;
  for (const Op& op : c.schedules.steady().ops) {
    if (op.unit != unit || op.phase != phase || (!op.has_work() && !op.is_host()) || op.module > 0) continue;
    text += (text.empty() ? "" : " ") + std::string(to_string(op.kind));
  }
  return text;
}

TEST(OffloadSchedule, AllBringsEachShardBeforeItsGatherAndEachGradientBack) {
  const testing::ScheduleCase c = testing::make_case(with(CpuOffload::all));
  EXPECT_EQ(ops_of(c, 1, Phase::forward), "host_to_device copy_in all_gather copy_out");
  EXPECT_EQ(ops_of(c, 1, Phase::backward),
            "host_to_device copy_in all_gather copy_out reduce_copy_in reduce_scatter device_to_host");
  EXPECT_EQ(ops_of(c, 1, Phase::optimizer), "host_wait optimizer");
}

TEST(OffloadSchedule, AllCopiesFp32AsPyTorchDoesAndCastsOnTheDevice) {
  const testing::ScheduleCase c = testing::make_case(with(CpuOffload::all, Layout::flat, DType::bf16));
  EXPECT_EQ(ops_of(c, 1, Phase::forward), "host_to_device cast_shard all_gather");
  for (const Op& op : c.schedules.steady().ops) {
    const auto* copy = std::get_if<Transfer>(&op.work);
    if (copy == nullptr) continue;
    EXPECT_EQ(copy->bytes, c.plan.units[static_cast<std::size_t>(op.unit)].layout.shard_numel * 4);
  }
}

TEST(OffloadSchedule, OptimizerKeepsShardsOnTheDeviceAndSendsThemBackAfterTheUpdate) {
  const testing::ScheduleCase c = testing::make_case(with(CpuOffload::optimizer, Layout::flat, DType::bf16));
  EXPECT_EQ(ops_of(c, 1, Phase::forward), "all_gather");
  EXPECT_EQ(ops_of(c, 1, Phase::optimizer), "host_wait optimizer cast_shard host_to_device");
  const auto sent = std::ranges::find_if(
      c.schedules.steady().ops, [](const Op& op) { return op.kind == OpKind::host_to_device && op.unit == 1; });
  EXPECT_EQ(std::get<Transfer>(sent->work).bytes, c.plan.units[1].layout.shard_numel * 2) << "in the compute dtype";
  EXPECT_FALSE(sent->prefetch) << "it is what the update is for";
}

// Microbatches that are reduced each: PyTorch's thread adds the copies, and waits for each.
TEST(OffloadSchedule, LaterMicrobatchesAreAddedOnTheHost) {
  config::RunConfig config = with(CpuOffload::all);
  config.train.accumulate = 2;
  const testing::ScheduleCase c = testing::make_case(config);
  std::string second;
  for (const Op& op : c.schedules.steady().ops) {
    if (op.unit != 1 || op.micro != 1 || op.phase != Phase::backward) continue;
    if (op.is_host() || op.lane == Lane::device_to_host || op.lane == Lane::host_compute)
      second += std::string(to_string(op.kind)) + ' ';
  }
  EXPECT_EQ(second, "device_to_host host_wait finish_gradient host_wait ");
  config.fsdp.cpu_offload = CpuOffload::optimizer;
  const testing::ScheduleCase other = testing::make_case(config);
  EXPECT_EQ(std::ranges::count_if(other.schedules.steady().ops, &Op::is_host), 8) << "before updates, nowhere else";
}

/// Units that stay gathered are gathered once the host has updated them.
TEST(OffloadSchedule, WhatStaysGatheredIsCopiedAfterTheUpdates) {
  config::RunConfig config = with(CpuOffload::all);
  config.fsdp.persistence_threshold = 1 << 30;
  const testing::ScheduleCase c = testing::make_case(config);
  EventId updated = kNoEvent;
  int copies = 0;
  for (const Op& op : c.schedules.steady().ops) {
    if (op.kind == OpKind::optimizer) updated = op.record;
    if (op.kind != OpKind::host_to_device) continue;
    EXPECT_EQ(op.phase, Phase::optimizer);
    if (copies++ == 0) {
      EXPECT_EQ(std::ranges::count(op.waits, Wait{updated, WaitReason::data}), 1);
    }
  }
  EXPECT_EQ(copies, 4);
}

std::int64_t bytes_of(const testing::ScheduleCase& c, MemorySpace space) {
  std::int64_t sum = 0;
  for (const Buffer& b : c.schedules.steady().buffers) {
    if (b.persistent && b.space == space) sum += LanePool::rounded(b.bytes);
  }
  return sum;
}

// Masters and moments leave the device; with `optimizer` it keeps a shard in the compute dtype.
TEST(OffloadSchedule, TheDeviceKeepsExactlyWhatIsLeft) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const testing::ScheduleCase none = testing::make_case(with(CpuOffload::none, Layout::flat, dtype));
    const testing::ScheduleCase all = testing::make_case(with(CpuOffload::all, Layout::flat, dtype));
    const testing::ScheduleCase optimizer = testing::make_case(with(CpuOffload::optimizer, Layout::flat, dtype));
    std::int64_t state = 0, shards = 0;
    for (const plan::Unit& unit : none.plan.units) {
      state += 3 * LanePool::rounded(unit.layout.shard_numel * 4);
      shards += LanePool::rounded(unit.layout.shard_numel * size_of(dtype));
    }
    EXPECT_EQ(bytes_of(none, MemorySpace::device) - bytes_of(all, MemorySpace::device), state);
    EXPECT_EQ(bytes_of(none, MemorySpace::device) - bytes_of(optimizer, MemorySpace::device), state - shards);
    for (const testing::ScheduleCase* c : {&all, &optimizer}) {
      EXPECT_EQ(bytes_of(*c, MemorySpace::host), state);
      EXPECT_GE(memory_walk(c->schedules, 3, MemorySpace::host).peak_occupied_total, state);
      EXPECT_LT(memory_walk(c->schedules, 3).peak_occupied_total, memory_walk(none.schedules, 3).peak_occupied_total);
    }
    EXPECT_EQ(memory_walk(none.schedules, 3, MemorySpace::host).peak_occupied_total, 0);
  }
}

// At its peak in backward FSDP2 has all reduced gradients on the device; offloaded ones are gone, and one copy of a
// shard is there instead.
TEST(OffloadSchedule, ReducedGradientsDoNotPileUpOnTheDevice) {
  const auto gradients = [](CpuOffload offload, int blocks) {
    config::RunConfig c = with(offload);
    c.model.layers = blocks;
    return memory_walk(testing::make_case(c).schedules, 3).peak_occupied[index_of(MemoryCategory::gradients)];
  };
  for (CpuOffload offload : {CpuOffload::all, CpuOffload::optimizer}) {
    EXPECT_EQ(gradients(offload, 4), gradients(offload, 12));
  }
  EXPECT_GT(gradients(CpuOffload::none, 12), gradients(CpuOffload::none, 4));
}

// Copies of shards do not run ahead of the gathers that they are for.
TEST(OffloadSchedule, FewCopiesOfShardsAreAliveAtATime) {
  for (int blocks : {4, 12}) {
    config::RunConfig c = with(CpuOffload::all);
    c.model.layers = blocks;
    const testing::ScheduleCase made = testing::make_case(c);
    int alive = 0, most = 0;
    for (const Op& op : made.schedules.steady().ops) {
      const auto copies = [&](const std::vector<BufferId>& list) {
        return static_cast<int>(std::ranges::count_if(list, [&](BufferId id) {
          return made.schedules.steady().buffers[static_cast<std::size_t>(id)].role == BufferRole::device_shard;
        }));
      };
      alive += copies(op.allocates);
      most = std::max(most, alive);
      alive -= copies(op.frees);
    }
    EXPECT_EQ(most, 1);
  }
}

TEST(OffloadSchedule, FindsAnOpThatReachesIntoTheOtherMemory) {
  testing::ScheduleCase c = testing::make_case(with(CpuOffload::all));
  Schedule& steady = c.schedules.steps.back();
  std::ranges::find(steady.ops, OpKind::optimizer, &Op::kind)->lane = Lane::compute;
  const std::vector<Fault> faults = check_schedules(c.schedules);
  ASSERT_FALSE(faults.empty());
  EXPECT_THAT(faults.front().message, ::testing::HasSubstr("cannot reach"));
}

TEST(OffloadSchedule, WithoutAnythingShardedThereIsNothingToOffload) {
  config::RunConfig c = with(CpuOffload::all);
  c.fsdp.shard_threshold = 1 << 30;
  config::RunConfig none = c;
  none.fsdp.cpu_offload = CpuOffload::none;
  EXPECT_EQ(testing::make_case(c).schedules.steps, testing::make_case(none).schedules.steps);
}

TEST(OffloadSchedule, RandomPoliciesAreFreeOfRacesWithIt) {
  std::mt19937 random(20261123);
  for (int i = 0; i < 1500; ++i) {
    config::RunConfig config = testing::random_config(random);
    config.fsdp.cpu_offload = i % 2 == 0 ? CpuOffload::all : CpuOffload::optimizer;
    const testing::ScheduleCase c = testing::make_case(config);
    const std::vector<Fault> faults = check_schedules(c.schedules);
    ASSERT_TRUE(faults.empty()) << "case " << i << ": step " << faults.front().step << ", op " << faults.front().op
                                << ": " << faults.front().message << '\n'
                                << op_list(c.plan, c.schedules.of_step(static_cast<std::size_t>(faults.front().step)));
  }
}

}  // namespace
}  // namespace fsdpbench::schedule
