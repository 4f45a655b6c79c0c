// No race, proved: any policy on any mesh passes the happens-before check, and taking out any wait either shows as a
// race or was listed as redundant.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/bytes.h"
#include "schedule/check_schedules.h"
#include "schedule/memory_walk.h"
#include "schedule/print_schedule.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

template <typename T>
T pick(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

config::RunConfig random_config(std::mt19937& random) {
  using namespace config;  // NOLINT: this function is nothing but enumerators
  const auto coin = [&] { return pick(random, {false, true}); };
  RunConfig c = testing::decoder_config(pick(random, {1, 2, 3, 5, 7}), 1);
  Fsdp& f = c.fsdp;
  f.strategy = pick(random, {Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard, Strategy::hybrid_shard,
                             Strategy::hybrid_shard_grad_op});
  const bool hybrid = f.strategy == Strategy::hybrid_shard || f.strategy == Strategy::hybrid_shard_grad_op;
  const int ranks = pick(random, {1, 2, 3, 4, 8});
  c.mesh.shard = f.strategy == Strategy::no_shard ? 1 : hybrid ? pick(random, {2, 4}) : ranks;
  c.mesh.replicate = f.strategy == Strategy::no_shard ? ranks : hybrid ? pick(random, {2, 3}) : 1;
  c.mesh.ranks = c.mesh.shard * c.mesh.replicate;
  if (coin()) c.model.kind = ModelKind::mlp;
  f.learn_execution_order = coin();
  f.layout = pick(random, {Layout::flat, Layout::per_param});
  using Reshard = ReshardAfterForward::Mode;
  f.reshard_after_forward.mode =
      pick(random, {Reshard::automatic, Reshard::automatic, Reshard::always, Reshard::never, Reshard::group});
  f.reshard_after_forward.group = c.mesh.shard % 2 == 0 ? 2 : static_cast<int>(c.mesh.shard);
  f.reshard_after_backward = coin();
  f.forward_prefetch = {pick(random, {Prefetch::Mode::none, Prefetch::Mode::implicit, Prefetch::Mode::explicit_}),
                        pick(random, {1, 2, 3})};
  f.backward_prefetch = {
      pick(random, {Prefetch::Mode::none, Prefetch::Mode::post, Prefetch::Mode::pre, Prefetch::Mode::explicit_}),
      pick(random, {1, 2, 3})};
  using Limit = AllGatherLimit::Mode;
  f.all_gather_limit = {
      pick(random, {Limit::unlimited, Limit::fsdp1_queue, Limit::fsdp2_event, Limit::strict, Limit::bytes}),
      pick(random, {1, 2, 3, 13}), pick<std::int64_t>(random, {1, 60000, 1000000})};
  f.reduce_scatter_buffers = pick(random, {0, 1, 2, 3});
  f.separate_reduce_scatter_comm = coin();
  f.wrap = {pick(random, {Wrap::Mode::block, Wrap::Mode::blocks, Wrap::Mode::min_size, Wrap::Mode::model}), 2, 9000};
  f.param_dtype = pick(random, {DType::f32, DType::bf16});
  f.reduce_dtype = pick(random, {DType::f32, DType::bf16});
  f.gradient_scaling = pick(random, {GradientScaling::average, GradientScaling::sum, GradientScaling::pre_post_divide});
  f.activation_checkpointing = coin();
  f.shard_threshold = pick<std::int64_t>(random, {0, 100, 2000, 1000000});
  c.train.accumulate = pick(random, {1, 2, 3});
  c.train.accumulate_mode =
      pick(random, {AccumulateMode::reduce_each, AccumulateMode::no_sync, AccumulateMode::reduce_scatter_only});
  c.train.optimizer = pick(random, {Optimizer::sgd, Optimizer::adamw});
  c.train.clip_norm = coin() ? 1.0 : 0.0;
  c.inject.host_sync_after_layer = pick<std::int64_t>(random, {-1, -1, 0});
  return c;
}

TEST(CheckSchedules, ThousandsOfRandomPoliciesAreFreeOfRaces) {
  std::mt19937 random(20240611);
  for (int i = 0; i < 3000; ++i) {
    const testing::ScheduleCase c = testing::make_case(random_config(random));
    const std::vector<Fault> faults = check_schedules(c.schedules);
    ASSERT_TRUE(faults.empty()) << "case " << i << ": step " << faults.front().step << ", op " << faults.front().op
                                << ": " << faults.front().message << '\n'
                                << op_list(c.plan, c.schedules.of_step(static_cast<std::size_t>(faults.front().step)));
  }
}

TEST(CheckSchedules, EveryWaitTakenOutIsARaceOrListedAsRedundant) {
  std::mt19937 random(7);
  int races = 0, listed = 0;
  for (int i = 0; i < 60; ++i) {
    const testing::ScheduleCase c = testing::make_case(random_config(random));
    const std::vector<RedundantWait> redundant = redundant_waits(c.schedules);
    const Schedule& steady = c.schedules.steady();
    for (std::size_t op = 0; op < steady.ops.size(); ++op) {
      for (std::size_t w = 0; w < steady.ops[op].waits.size(); ++w) {
        Schedules without = c.schedules;
        std::vector<Wait>& waits = without.steps.back().ops[op].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
        const bool race = !check_schedules(without, 1).empty();
        const bool is_listed = std::any_of(redundant.begin(), redundant.end(), [&](const RedundantWait& r) {
          return r.op == static_cast<int>(op) && r.wait == static_cast<int>(w);
        });
        EXPECT_NE(race, is_listed) << "case " << i << " op " << op;
        races += race ? 1 : 0;
        listed += is_listed ? 1 : 0;
      }
    }
  }
  EXPECT_GT(races, 500);
  EXPECT_GT(listed, 50);
}

TEST(CheckSchedules, DefaultSchedulesCarryNoIdleWaits) {
  // Every wait of the default is either needed or a stated limit. What is implied: the gather lane's own wait at the
  // start of a step, which PyTorch has as well, and the optimizer's wait for reductions whose inputs it also frees.
  for (config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
    config::RunConfig config = testing::decoder_config(4, 4);
    config.fsdp.layout = layout;
    const testing::ScheduleCase c = testing::make_case(config);
    for (const RedundantWait& r : redundant_waits(c.schedules)) {
      const Op& op = c.schedules.steady().ops[static_cast<std::size_t>(r.op)];
      EXPECT_TRUE(!r.implied || op.lane == Lane::all_gather || op.lane == Lane::copy || op.phase == Phase::optimizer)
          << op_name(c.plan, op) << '\n'
          << op_list(c.plan, c.schedules.steady());
    }
  }
}

TEST(CheckSchedules, FindsPlantedFaults) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(3, 4));
  const auto faults_after = [&](auto change) {
    Schedules changed = c.schedules;
    change(changed.steps.back());
    return check_schedules(changed, 1).size();
  };
  const auto find = [](Schedule& s, OpKind kind, Phase phase) -> Op& {
    return *std::find_if(s.ops.begin(), s.ops.end(),
                         [&](const Op& op) { return op.kind == kind && op.phase == phase; });
  };
  EXPECT_EQ(faults_after([](Schedule&) {}), 0U);
  // Freed one op too early: by the copy-out's own lane, before the forward that reads it.
  EXPECT_EQ(faults_after([&](Schedule& s) {
              Op& reshard = find(s, OpKind::reshard, Phase::forward);
              find(s, OpKind::copy_out, Phase::forward).frees = reshard.frees;
            }),
            1U);
  EXPECT_EQ(faults_after([&](Schedule& s) { find(s, OpKind::reshard, Phase::backward).frees.clear(); }), 1U);
  EXPECT_EQ(faults_after([&](Schedule& s) { find(s, OpKind::forward, Phase::forward).allocates.clear(); }), 1U);
  EXPECT_EQ(faults_after([&](Schedule& s) {
              Op& forward = find(s, OpKind::forward, Phase::forward);
              forward.frees.push_back(forward.frees.front());
            }),
            1U);
}

TEST(CheckCollectives, FindsRanksThatDisagree) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(3, 4));
  const Schedule& good = c.schedules.steady();
  const auto with = [&](auto change) {
    Schedule changed = good;
    change(changed);
    return check_collectives({&good, &good, &changed});
  };
  EXPECT_FALSE(with([](Schedule&) {}));
  const auto is_gather = [](const Op& op) { return op.kind == OpKind::all_gather; };
  EXPECT_TRUE(with([&](Schedule& s) { std::find_if(s.ops.begin(), s.ops.end(), is_gather)->count += 1; }));
  EXPECT_TRUE(
      with([&](Schedule& s) { std::find_if(s.ops.begin(), s.ops.end(), is_gather)->kind = OpKind::all_reduce; }));
  EXPECT_TRUE(with([&](Schedule& s) { s.ops.erase(std::find_if(s.ops.begin(), s.ops.end(), is_gather)); }));
  EXPECT_TRUE(
      with([&](Schedule& s) { std::find_if(s.ops.begin(), s.ops.end(), is_gather)->group = Group::replicate; }));
}

TEST(MemoryWalk, CountsOnWhatItNeedNotWalk) {
  // The same steps written out are walked one by one.
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const testing::ScheduleCase c = testing::make_case(random_config(random));
    Schedules written_out = c.schedules;
    written_out.steps.resize(written_out.steps.size() + 40, c.schedules.steady());
    for (std::int64_t steps : {0, 1, 2, 5, 39, 40}) {
      EXPECT_EQ(memory_walk(c.schedules, steps), memory_walk(written_out, steps)) << "case " << i;
    }
  }
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

}  // namespace
}  // namespace fsdpbench::schedule
