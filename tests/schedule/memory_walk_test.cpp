// Memory of a schedule, to the byte: limits and buffers bound it as their rules say.
#include "schedule/memory_walk.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "schedule/build_schedules.h"
#include "support/random_config.h"

namespace fsdpbench::schedule {
namespace {

TEST(MemoryWalk, CountsOnWhatItNeedNotWalk) {
  // Steps that are written out are walked one by one.
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const testing::ScheduleCase c = testing::make_case(testing::random_config_of_round(random, i));
    Schedules written_out = c.schedules;
    written_out.steps.resize(written_out.steps.size() + 40, c.schedules.steady());
    for (std::int64_t steps : {0, 1, 2, 5, 39, 40}) {
      EXPECT_EQ(memory_walk(c.schedules, steps), memory_walk(written_out, steps)) << "case " << i;
    }
  }
}

/// Memory that one lane has freed is another's once the host has waited for all: at a sync, and after each step.
TEST(MemoryWalk, TheHostHandsMemoryFromLaneToLane) {
  const auto use = [](Lane lane, BufferId id) {
    return Op{.lane = lane, .work = Cast{}, .allocates = {id}, .frees = {id}};
  };
  const Op one = use(Lane::compute, 0), other = use(Lane::copy, 1), sync{.kind = OpKind::host_sync};
  const auto reserved = [](const std::vector<std::vector<Op>>& steps) {
    Schedules schedules;
    for (const std::vector<Op>& ops : steps) schedules.steps.push_back({ops, {{.bytes = 100}, {.bytes = 100}}});
    return memory_walk(schedules, std::ssize(steps)).reserved / LanePool::kGranule;
  };
  EXPECT_EQ(reserved({{one, other}}), 2);
  EXPECT_EQ(reserved({{one, sync, other}}), 1);
  EXPECT_EQ(reserved({{one}, {other}}), 1);
}

/// Nobody walks a billion steps: what they allocate is that of one, so many times.
TEST(MemoryWalk, StepsThatRepeatAreMultiplied) {
  constexpr std::int64_t kSteps = 1'000'000'000;
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(2, 4));
  std::int64_t persistent = 0, a_step = 0;
  for (const Buffer& buffer : c.schedules.steady().buffers) ++(buffer.persistent ? persistent : a_step);
  EXPECT_EQ(memory_walk(c.schedules, kSteps).allocations, persistent + kSteps * a_step);
}

TEST(MemoryWalk, CategoriesReserveForThemselves) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(2, 4));
  const CategoryBytes categories = category_walk(c.schedules, 3);
  const PoolStatistics statistics = memory_walk(c.schedules, 3);
  for (std::size_t i = 0; i < categories.size(); ++i) EXPECT_GE(categories[i], statistics.peak_occupied[i]);
  std::int64_t shards = 0;
  for (const plan::Unit& unit : c.plan.units) shards += LanePool::rounded(unit.layout.shard_numel * 4);
  EXPECT_EQ(categories[index_of(MemoryCategory::parameter_shards)], shards);
}

/// Half is saved for backward as it is, and of what is kept for the recomputation nothing twice.
TEST(MemoryWalk, WhatACheckpointedBlockKeepsAndSaves) {
  config::RunConfig c = testing::decoder_config(1, 4);
  c.fsdp.activation_checkpointing = true;
  c.fsdp.checkpoint_keeps = config::CheckpointKeeps::products;
  plan::ModuleSizes block;
  block.output_bytes = 4096;
  block.saved_bytes = 1000;
  const plan::Plan plan = plan::make_plan(c);
  std::vector<plan::ModuleSizes> sizes(3, block);
  const auto saved = [&] {
    std::string text;
    const Training made{c, plan, make_policy(c), sizes, build_schedules(plan, make_policy(c), sizes)};
    for (const Op& op : made.schedules.steady().ops) {
      if (op.module != 1 || (op.kind != OpKind::forward && op.kind != OpKind::recompute)) continue;
      for (const BufferId id : op.allocates) {
        const Buffer& buffer = made.schedules.steady().buffers[id];
        if (buffer.role == BufferRole::saved) text += ' ' + std::to_string(buffer.bytes);
      }
      text += std::find_if(op.frees.begin(), op.frees.end(),
                           [&](BufferId id) {
                             return made.schedules.steady().buffers[id].role == BufferRole::saved;
                           }) == op.frees.end()
                  ? " stay,"
                  : " freed,";
    }
    return text;
  };
  sizes[1].kept_output_bytes = 300;
  sizes[1].kept_saved_bytes = 200;
  EXPECT_EQ(saved(), " 300 800 freed, 800 stay,");
  c.fsdp.checkpoint_keeps = config::CheckpointKeeps::nothing;
  c.fsdp.recompute_share = 0.75;
  EXPECT_EQ(saved(), " 250 750 freed, 750 stay,");
  c.fsdp.activation_checkpointing = false;
  EXPECT_EQ(saved(), " 1000 stay,");
}

// A gather queues behind the reductions before it on their communicator, so that the backward it is for comes after
// them.
TEST(MemoryWalk, ReductionsBeforeAGatherBoundWaitingGradients) {
  config::RunConfig c = testing::decoder_config(16, 2);
  c.fsdp.layout = config::Layout::flat;
  c.fsdp.reduce_scatter_buffers = 0;
  const auto gradients = [&](bool separate) {
    c.fsdp.separate_reduce_scatter_comm = separate;
    const testing::ScheduleCase made = testing::make_case(c);
    const std::int64_t unit = made.plan.units[1].layout.unsharded_numel * size_of(made.plan.gradient_dtype);
    const std::int64_t shards = 16 * made.plan.units[1].layout.shard_numel * 4;
    const auto peak = memory_walk(made.schedules, 3).peak_occupied[index_of(MemoryCategory::gradients)];
    return static_cast<double>(peak - shards) / static_cast<double>(unit);
  };
  EXPECT_LT(gradients(false), 8);
  EXPECT_GT(gradients(true), 14) << "nothing orders them";
}

TEST(MemoryWalk, SelectiveCheckpointingKeepsItsShare) {
  config::RunConfig c = testing::decoder_config(8, 2);
  const auto activations = [&](bool checkpointing, double share, std::int64_t every) {
    c.fsdp.activation_checkpointing = checkpointing;
    c.fsdp.recompute_share = share;
    c.fsdp.checkpoint_every = every;
    return memory_walk(testing::make_case(c).schedules, 2).peak_occupied[index_of(MemoryCategory::activations)];
  };
  const std::int64_t none = activations(false, 1, 1), half = activations(true, 0.5, 1), all = activations(true, 1, 1);
  EXPECT_LT(all, half);
  EXPECT_LT(half, none);
  // Seven blocks keep half of what they save while the first block's backward runs.
  EXPECT_GT(half - all, 7 * 20000 / 2);
  EXPECT_EQ(activations(true, 1e-9, 1), none) << "everything is kept";
  EXPECT_LT(all, activations(true, 1, 2));
  EXPECT_LT(activations(true, 1, 2), none);
}

TEST(MemoryWalk, KeptOutputsLiveFromForwardToBackward) {
  config::RunConfig c = testing::decoder_config(8, 2);
  const auto activations = [&](config::CheckpointKeeps keeps) {
    c.fsdp.checkpoint_keeps = keeps;
    const testing::ScheduleCase made = testing::make_case(c);
    return std::pair(memory_walk(made.schedules, 2).peak_occupied[index_of(MemoryCategory::activations)],
                     made.sizes[1].kept_output_bytes);
  };
  const std::int64_t saved = activations(config::CheckpointKeeps::nothing).first;
  c.fsdp.activation_checkpointing = true;
  std::int64_t less = activations(config::CheckpointKeeps::nothing).first;
  for (const auto keeps : {config::CheckpointKeeps::attention, config::CheckpointKeeps::every_second_product,
                           config::CheckpointKeeps::products}) {
    const auto [peak, kept] = activations(keeps);
    EXPECT_GT(peak, less);
    EXPECT_GE(peak, 7 * kept) << "of seven blocks while the eighth is computed";
    less = peak;
  }
  EXPECT_GT(less, saved) << "outputs that only go into a sum are kept, though backward does not need them";
}

TEST(MemoryWalk, StrictLimitsDifferByExactlyOneUnit) {
  for (config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
    std::vector<std::int64_t> peaks;
    std::int64_t unit_bytes = 0;
    for (int limit : {1, 2, 3}) {
      config::RunConfig config = testing::decoder_config(8, 4);
      config.fsdp.layout = layout;
      config.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::strict, limit, 0};
      const testing::ScheduleCase c = testing::make_case(config);
      unit_bytes = round_up(c.plan.units[1].layout.gathered_numel() * 4, LanePool::kGranule);
      peaks.push_back(memory_walk(c.schedules, 4).peak_occupied[index_of(MemoryCategory::unsharded_parameters)]);
    }
    EXPECT_EQ(peaks[1] - peaks[0], unit_bytes);
    EXPECT_EQ(peaks[2] - peaks[1], unit_bytes);
  }
}

TEST(MemoryWalk, Fsdp2LiveCopiesAreAsDerivedFromItsRules) {
  // Implicit prefetching: two all-gather outputs and one unit of parameters; explicit depth k: k + 1 outputs and one.
  for (int depth : {0, 1, 2, 3}) {
    config::RunConfig config = testing::decoder_config(8, 4);
    if (depth > 0) config.fsdp.forward_prefetch = {config::Prefetch::Mode::explicit_, depth};
    const testing::ScheduleCase c = testing::make_case(config);
    const plan::Unit& unit = c.plan.units[1];
    const plan::Unit& root = c.plan.units[0];
    const std::int64_t copies = std::max(depth, 1) + 2;
    EXPECT_EQ(memory_walk(c.schedules, 4).peak_occupied[index_of(MemoryCategory::unsharded_parameters)],
              copies * round_up(unit.layout.gathered_numel() * 4, LanePool::kGranule) +
                  round_up(root.layout.gathered_numel() * 4, LanePool::kGranule));
  }
}

TEST(MemoryWalk, Fsdp1QueueLetsOneMoreUnitLiveThanItSays) {
  std::vector<std::int64_t> peaks;
  std::int64_t unit_bytes = 0;
  for (int limit : {1, 2, 3}) {
    config::RunConfig config = testing::decoder_config(12, 4);
    config.fsdp.layout = config::Layout::flat;
    config.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::fsdp1_queue, limit, 0};
    const testing::ScheduleCase queue = testing::make_case(config);
    config.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::strict, limit + 1, 0};
    const testing::ScheduleCase strict = testing::make_case(config);
    unit_bytes = queue.plan.units[1].layout.gathered_numel() * 4;
    const auto unsharded = [](const testing::ScheduleCase& c) {
      return memory_walk(c.schedules, 4).peak_occupied[index_of(MemoryCategory::unsharded_parameters)];
    };
    EXPECT_NEAR(static_cast<double>(unsharded(queue)), static_cast<double>(unsharded(strict)),
                static_cast<double>(unit_bytes) / 2)
        << "limit " << limit;
  }
}

TEST(MemoryWalk, WithoutALimitEveryUnitOfTheForwardMayLive) {
  config::RunConfig config = testing::decoder_config(8, 4);
  config.fsdp.layout = config::Layout::flat;
  config.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::unlimited, 0, 0};
  const testing::ScheduleCase c = testing::make_case(config);
  const std::int64_t unit = c.plan.units[1].layout.gathered_numel() * 4;
  EXPECT_GE(memory_walk(c.schedules, 4).peak_occupied[index_of(MemoryCategory::unsharded_parameters)], 8 * unit);
}

TEST(MemoryWalk, ReduceScatterBuffersBoundTheirInputs) {
  std::vector<std::int64_t> peaks;
  for (int buffers : {1, 2, 3}) {
    config::RunConfig config = testing::decoder_config(8, 4);
    config.fsdp.reduce_scatter_buffers = buffers;
    const testing::ScheduleCase c = testing::make_case(config);
    peaks.push_back(memory_walk(c.schedules, 4).peak_occupied[index_of(MemoryCategory::communication_buffers)]);
  }
  EXPECT_EQ(peaks[1] - peaks[0], peaks[2] - peaks[1]);
  EXPECT_GT(peaks[1], peaks[0]);
}

TEST(MemoryWalk, GradientsThatABackwardDoesNotFreeMayComeLater) {
  Schedule schedule;
  for (const BufferRole role : {BufferRole::gradients, BufferRole::d_stream, BufferRole::saved}) {
    schedule.buffers.emplace_back().role = role;
  }
  const auto later = [&](OpKind kind, std::vector<BufferId> frees = {}) {
    const Op op{.kind = kind, .frees = std::move(frees)};
    return std::vector{may_come_later(schedule, op, 0), may_come_later(schedule, op, 1),
                       may_come_later(schedule, op, 2)};
  };
  EXPECT_EQ(later(OpKind::backward), (std::vector{true, true, false}));
  EXPECT_EQ(later(OpKind::backward, {1, 2}), (std::vector{true, false, false}));
  EXPECT_EQ(later(OpKind::forward), (std::vector{false, false, false}));
}

}  // namespace
}  // namespace fsdpbench::schedule
