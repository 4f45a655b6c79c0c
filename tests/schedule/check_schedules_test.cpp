// No race, proved: any policy on any mesh passes the happens-before check, and taking out any wait either shows as a
// race or was listed as redundant.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <variant>

#include "schedule/print_schedule.h"
#include "support/check_schedules.h"
#include "support/presets.h"
#include "support/random_config.h"

namespace fsdpbench::schedule {
namespace {

using testing::random_config;

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

TEST(CheckSchedules, RandomPoliciesOnRanksThatSplitLayersAreFreeOfRaces) {
  std::mt19937 random(20261122);
  std::map<OpKind, int> exchanges;
  for (int i = 0; i < 1000; ++i) {
    config::RunConfig config = random_config(random);
    testing::split_layers(random, config);
    const testing::ScheduleCase c = testing::make_case(config);
    const std::vector<Fault> faults = check_schedules(c.schedules);
    ASSERT_TRUE(faults.empty()) << "case " << i << ": step " << faults.front().step << ", op " << faults.front().op
                                << ": " << faults.front().message << '\n'
                                << op_list(c.plan, c.schedules.of_step(static_cast<std::size_t>(faults.front().step)));
    for (const Op& op : c.schedules.steady().ops) ++exchanges[op.exchanges_parts() ? op.kind : OpKind::forward];
  }
  for (const OpKind kind : {OpKind::tensor_all_reduce, OpKind::tensor_all_gather, OpKind::tensor_reduce_scatter}) {
    EXPECT_GT(exchanges[kind], 10000) << to_string(kind);
  }
}

/// A preset with everything else as it is drawn; its mesh suits its strategy.
config::RunConfig random_use_of(const std::string& preset, std::mt19937& random) {
  const config::RunConfig any = random_config(random);
  const std::int64_t unit = plan::make_plan(any).units.back().layout.parameter_numel();
  config::RunConfig c = testing::with_scaled_preset(any, preset, unit);
  const bool shards_nothing = c.mesh.shard == 1 && any.fsdp.strategy != config::Strategy::no_shard;
  if (c.fsdp.strategy != any.fsdp.strategy || shards_nothing) c.mesh = {c.mesh.ranks, c.mesh.ranks, 1};
  if (shards_nothing) c.fsdp.strategy = config::Strategy::full_shard;
  using Reshard = config::ReshardAfterForward::Mode;
  const bool pairs = c.mesh.shard % 2 == 0;
  if (c.fsdp.reshard_after_forward.mode == Reshard::group) c.fsdp.reshard_after_forward.group = pairs ? 2 : 1;
  return c;
}

TEST(CheckSchedules, EveryPresetIsFreeOfRacesWhateverElseIsAsked) {
  std::mt19937 random(20261122);
  for (const std::string& preset : config::fsdp_preset_names()) {
    for (int i = 0; i < 150; ++i) {
      const testing::ScheduleCase c = testing::make_case(random_use_of(preset, random));
      const std::vector<Fault> faults = check_schedules(c.schedules);
      ASSERT_TRUE(faults.empty()) << preset << ", case " << i << ": step " << faults.front().step << ", op "
                                  << faults.front().op << ": " << faults.front().message;
    }
  }
}

/// The schedules without one wait of the steady step.
Schedules without_wait(const Schedules& schedules, std::size_t op, std::size_t wait) {
  Schedules without = schedules;
  std::vector<Wait>& waits = without.steps.back().ops[op].waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
  return without;
}

TEST(CheckSchedules, AnExchangeThatNobodyWaitsForIsARace) {
  config::RunConfig config = testing::decoder_config(2, 2);
  config.mesh = {4, 2, 1, 2};
  const testing::ScheduleCase c = testing::make_case(config);
  const std::vector<Op>& ops = c.schedules.steady().ops;
  int waits = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (std::size_t w = 0; w < ops[i].waits.size(); ++w) {
      const auto recorded = std::ranges::find(ops, ops[i].waits[w].event, &Op::record);
      if (ops[i].lane != Lane::tensor && (recorded == ops.end() || recorded->lane != Lane::tensor)) continue;
      EXPECT_FALSE(check_schedules(without_wait(c.schedules, i, w), 1).empty()) << op_name(c.plan, ops[i]);
      ++waits;
    }
  }
  EXPECT_EQ(waits, 2 * (2 + 2 * 4 + 1));
}

TEST(CheckSchedules, WaitsTakenOutAreRacesUnlessTheyAreLimits) {
  // `limit` promises that the result is right without it. Of the others, few are implied by a wait beside them; more
  // are where other engines order a gather after all computation, or lanes are shared.
  std::mt19937 random(7);
  int races = 0, implied = 0, limits = 0;
  for (int i = 0; i < 40; ++i) {
    const bool engines = i % 2 == 1;
    const testing::ScheduleCase c = testing::make_case(random_config(random, engines));
    const Schedule& steady = c.schedules.steady();
    for (std::size_t op = 0; op < steady.ops.size(); ++op) {
      for (std::size_t w = 0; w < steady.ops[op].waits.size(); ++w) {
        const bool race = !check_schedules(without_wait(c.schedules, op, w), 1).empty();
        if (steady.ops[op].waits[w].reason == WaitReason::limit) {
          EXPECT_FALSE(race) << "case " << i << ", " << op_name(c.plan, steady.ops[op]);
          ++limits;
        } else if (!engines) {
          ++(race ? races : implied);
        }
      }
    }
  }
  EXPECT_GT(limits, 50);
  EXPECT_GT(races, 500);
  EXPECT_LT(implied, races / 2);
}

TEST(CheckSchedules, DefaultSchedulesCarryNoIdleWaits) {
  // Every wait of the default is needed. What is implied: the gather lane's own wait at the start of a step, which
  // PyTorch has as well, and the optimizer's wait for reductions whose inputs it also frees.
  for (config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
    config::RunConfig config = testing::decoder_config(4, 4);
    config.fsdp.layout = layout;
    const testing::ScheduleCase c = testing::make_case(config);
    const std::vector<Op>& ops = c.schedules.steady().ops;
    int needed = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (std::size_t w = 0; w < ops[i].waits.size(); ++w) {
        if (ops[i].waits[w].reason == WaitReason::limit) continue;
        const bool race = !check_schedules(without_wait(c.schedules, i, w), 1).empty();
        needed += race ? 1 : 0;
        EXPECT_TRUE(race || ops[i].lane == Lane::all_gather || ops[i].lane == Lane::copy ||
                    ops[i].phase == Phase::optimizer)
            << op_name(c.plan, ops[i]) << '\n'
            << op_list(c.plan, c.schedules.steady());
      }
    }
    EXPECT_GT(needed, 15);
  }
}

/// In a bucket of gathers or reductions no two units share a place, whoever copies in, copies out or adds up.
TEST(CheckSchedules, EachUnitOfABucketHasAPlaceOfItsOwn) {
  std::mt19937 random(12);
  int shared = 0;
  for (const std::string& preset : config::fsdp_preset_names()) {
    for (int i = 0; i < 20; ++i) {
      const testing::ScheduleCase c = testing::make_case(random_use_of(preset, random));
      std::map<std::tuple<OpKind, BufferId, std::int64_t>, int> places;
      for (const Op& op : c.schedules.steady().ops) {
        const auto* copy = std::get_if<LayoutCopy>(&op.work);
        const auto* sum = std::get_if<Accumulate>(&op.work);
        if ((copy == nullptr || copy->stride == 0) && (sum == nullptr || sum->stride == 0)) continue;
        const bool out = op.kind == OpKind::copy_out;
        const BufferId bucket = sum != nullptr ? sum->from : out ? copy->from : copy->to;
        const std::int64_t offset = sum != nullptr ? sum->offset : copy->offset;
        EXPECT_EQ(places.try_emplace({op.kind, bucket, offset}, op.unit).first->second, op.unit)
            << preset << ", case " << i << ": " << op_name(c.plan, op);
        shared += offset > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(shared, 100);
}

TEST(CheckSchedules, CollectivesFitTheirBuffers) {
  std::mt19937 random(11);
  int collectives = 0;
  for (int i = 0; i < 300; ++i) {
    const testing::ScheduleCase c = testing::make_case(random_config(random));
    for (const Schedule& step : c.schedules.steps) {
      for (const Op& op : step.ops) {
        if (!op.is_collective()) continue;
        const Collective& work = *op.collective();
        const auto bytes = [&](BufferId id) { return step.buffers[static_cast<std::size_t>(id)].bytes; };
        const std::int64_t all = work.bytes() * c.plan.groups.size(work.group);
        switch (op.kind) {
          case OpKind::all_gather:
          case OpKind::gather_norm:
            EXPECT_EQ(bytes(work.output), all);
            EXPECT_TRUE(work.input == work.output || bytes(work.input) == work.bytes());
            break;
          case OpKind::reduce_scatter:
            EXPECT_EQ(bytes(work.input), all);
            EXPECT_EQ(bytes(work.output), work.bytes());
            break;
          default: EXPECT_EQ(work.input, work.output); EXPECT_EQ(bytes(work.output), work.bytes());
        }
        // An all-reduce over one rank moves nothing, so it has no communicator.
        EXPECT_TRUE(c.plan.groups.exists(work.group) ||
                    (op.kind == OpKind::all_reduce && c.plan.groups.size(work.group) == 1));
        ++collectives;
      }
    }
  }
  EXPECT_GT(collectives, 3000);
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

}  // namespace
}  // namespace fsdpbench::schedule
