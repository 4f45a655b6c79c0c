// mesh.expert on plan, schedule and computed clock: exact orders, bytes by hand, and an effect of each of its keys.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "schedule/print_schedule.h"
#include "support/check_schedules.h"
#include "support/communication_formula.h"
#include "support/small_simulation.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using schedule::Op;
using schedule::OpKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two blocks of four experts, each token visits two: on four ranks, of which two split the experts.
RunConfig mixture(const std::function<void(RunConfig&)>& change = {}) {
  RunConfig c = testing::small_mixture(2, 4);
  if (change) change(c);
  config::validate(c);
  return c;
}

/// Passes, exchanges of rows, collectives and waits of the host, as the host issues them.
std::vector<std::string> order(const engine::Setup& p) {
  std::vector<std::string> names;
  for (const Op& op : p.schedules.steady().ops) {
    const bool pass = op.kind == OpKind::forward || op.kind == OpKind::recompute || op.kind == OpKind::backward;
    if (pass || op.is_collective() || op.is_host()) names.push_back(schedule::op_name(p.plan, op));
  }
  return names;
}

std::string error_of(const std::function<void(RunConfig&)>& change) {
  return testing::refusal([&] { mixture(change); });
}

TEST(ExpertParallel, ItsOrderIsThatOfTwoParameterGroupsInABlock) {
  const engine::Setup p = set_up(mixture());
  EXPECT_THAT(
      order(p),
      ElementsAre("all_gather R", "forward embedding",                                                             //
                  "all_gather 0", "all_gather E0", "forward blocks.0/0", "expert_counts blocks.0", "host_wait 0",  //
                  "expert_dispatch blocks.0", "forward blocks.0/1", "expert_combine blocks.0", "forward blocks.0/2",
                  "all_gather 1", "all_gather E1", "forward blocks.1/0", "expert_counts blocks.1", "host_wait 1",  //
                  "expert_dispatch blocks.1", "forward blocks.1/1", "expert_combine blocks.1", "forward blocks.1/2",
                  "forward head",                                            //
                  "all_gather E1*", "backward head", "all_gather 1",         //
                  "all_gather E0*", "all_gather 0*", "backward blocks.1/0",  //
                  "expert_dispatch blocks.1", "backward blocks.1/1",         //
                  "expert_combine blocks.1", "backward blocks.1/2",          //
                  "reduce_scatter E1", "reduce_scatter 1",                   //
                  "backward blocks.0/0", "expert_dispatch blocks.0",         //
                  "backward blocks.0/1", "expert_combine blocks.0", "backward blocks.0/2", "reduce_scatter E0",
                  "reduce_scatter 0", "backward embedding", "reduce_scatter R"));
}

TEST(ExpertParallel, AnExplicitPrefetchGathersBothGroupsOfTheNextBlock) {
  const std::vector<std::string> all = order(set_up(mixture([](RunConfig& c) {
    c.fsdp.forward_prefetch = {.mode = config::Prefetch::Mode::explicit_, .depth = 1};
    c.mesh.expert_sync = false;
  })));
  EXPECT_THAT(std::vector(all.begin(), all.begin() + 12),
              ElementsAre("all_gather R", "all_gather 0*", "all_gather E0*", "forward embedding", "all_gather 1*",
                          "all_gather E1*", "forward blocks.0/0", "expert_dispatch blocks.0", "forward blocks.0/1",
                          "expert_combine blocks.0", "forward blocks.0/2", "forward blocks.1/0"));
}

TEST(ExpertParallel, GroupsAreNeighboursAndThoseWithTheSameExperts) {
  const plan::Plan plan = set_up(mixture([](RunConfig& c) {
                            c.mesh = {8, 4, 2};
                            c.mesh.expert = 2;
                            c.fsdp.strategy = config::Strategy::hybrid_shard;
                          })).plan;
  EXPECT_THAT(plan.groups.members(plan::Group::expert, 5).ranks(), ElementsAre(4, 5));
  EXPECT_THAT(plan.groups.members(plan::Group::expert_shard, 5).ranks(), ElementsAre(5, 7));
  EXPECT_THAT(plan.groups.members(plan::Group::replicate, 5).ranks(), ElementsAre(1, 5));
  // A block's experts: two of [2 * 32, 16] and one of [2 * 16, 32] here, over two ranks; all else over four.
  const plan::Unit &block = plan.units[1], &experts = plan.units[static_cast<std::size_t>(block.experts)];
  EXPECT_EQ(experts.layout.shard_numel, 3 * 2 * 32 * 16 / 2);
  EXPECT_EQ(experts.layout.shards, 2);
  EXPECT_EQ(block.layout.shards, 4);
  RunConfig whole = mixture();
  whole.mesh.expert = 1;
  EXPECT_EQ(plan.shapes.parameter_count(), set_up(whole).plan.shapes.parameter_count());
}

/// 8 tokens visit 2 experts each: 16 rows of 16 floats, of which one of two ranks' half goes to the other.
TEST(ExpertParallel, BytesAreThoseOfTheFormula) {
  constexpr double kRows = 16.0 * 16 * 4 / 2, kCounts = 4.0 / 2 * 4;
  const auto all_to_all = [](const std::function<void(RunConfig&)>& change) {
    const RunConfig c = mixture(change);
    const engine::Setup p = set_up(c);
    EXPECT_TRUE(schedule::check_schedules(p.schedules).empty());
    const plan::CommunicationVolume formula =
        plan::communication_volume(p.plan, c, schedule::regathers(p.policy, p.plan));
    const Measurement m = simulate(p, simulated_times(p, nullptr));
    const auto counted = [&](backend::Collective kind) {
      return static_cast<double>(m.wire_bytes.front()[static_cast<std::size_t>(kind)]) /
             static_cast<double>(c.train.steps);
    };
    EXPECT_EQ(counted(backend::Collective::all_to_all), formula.all_to_all);
    EXPECT_EQ(counted(backend::Collective::all_gather), formula.all_gather);
    EXPECT_EQ(counted(backend::Collective::reduce_scatter), formula.reduce_scatter);
    return formula.all_to_all;
  };
  EXPECT_EQ(all_to_all({}), 2 * (4 * kRows + kCounts));
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.mesh.expert_sync = false; }), 2 * 4 * kRows);
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.mesh.expert_imbalance = 1.5; }), 2 * (4 * 1.5 * kRows + kCounts));
  // Two of four experts are on both ranks with a chance of 2/3: 8 tokens send 40/3 rows, so 7 instead of 8 to each
  // rank.
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.mesh.expert_rows = config::ExpertRows::each_rank; }),
            2 * (4 * kRows / 8 * 7 + kCounts));
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.mesh.expert_rows = config::ExpertRows::one_rank; }),
            2 * (4 * kRows / 2 + kCounts));
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.fsdp.activation_checkpointing = true; }), 2 * (6 * kRows + 2 * kCounts));
  EXPECT_EQ(all_to_all([](RunConfig& c) {
              c.fsdp.activation_checkpointing = true;
              c.fsdp.checkpoint_keeps = config::CheckpointKeeps::products;
            }),
            2 * (4 * kRows + kCounts));
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.train.accumulate = 2; }), 2 * 2 * (4 * kRows + kCounts));
  // All four ranks split the experts: nobody else has a rank's, and three quarters of its rows leave it.
  EXPECT_EQ(all_to_all([](RunConfig& c) { c.mesh.expert = 4, c.mesh.expert_sync = false; }), 2 * 4 * kRows * 3 / 2);
}

TEST(ExpertParallel, ExpertsOfOneRankAreNotGathered) {
  for (const std::string& name : order(set_up(mixture([](RunConfig& c) { c.mesh.expert = 4; })))) {
    EXPECT_THAT(name, ::testing::Not(HasSubstr(" E")));
  }
}

TEST(ExpertParallel, ImbalanceAndWaitsForCountsTakeTheirTime) {
  const double uniform = testing::median_step_ms(mixture());
  EXPECT_GT(testing::median_step_ms(mixture([](RunConfig& c) { c.mesh.expert_imbalance = 2; })), 1.1 * uniform);
  EXPECT_LT(testing::median_step_ms(mixture([](RunConfig& c) { c.mesh.expert_sync = false; })), uniform);
  const auto kept = [](double imbalance) {
    return set_up(mixture([&](RunConfig& c) { c.mesh.expert_imbalance = imbalance; })).memory.peak_occupied_total;
  };
  EXPECT_GT(kept(2), kept(1));
}

/// torchtitan's selective checkpointing keeps what exchanges brought; the host asks for their sizes once more.
TEST(ExpertParallel, KeptExchangesAreNotRepeated) {
  const auto with = [](config::CheckpointKeeps keeps, bool sync = true) {
    return mixture([&](RunConfig& c) {
      c.model.layers = 1;
      c.fsdp.activation_checkpointing = true;
      c.fsdp.checkpoint_keeps = keeps;
      c.mesh.expert_sync = sync;
    });
  };
  using Keeps = config::CheckpointKeeps;
  const auto again = [&](const RunConfig& c) {
    const std::vector<std::string> all = order(set_up(c));
    const auto begin =
                   std::ranges::find_if(all, [](const auto&name) { return name.starts_with("recompute blocks.0"); }),
               end =
                   std::ranges::find_if(begin, all.end(), [](const auto&name) { return name.starts_with("backward"); });
    return std::vector(begin, end);
  };
  EXPECT_THAT(again(with(Keeps::nothing)),
              ElementsAre("recompute blocks.0/0", "expert_counts blocks.0", "host_wait 0", "expert_dispatch blocks.0",
                          "recompute blocks.0/1", "expert_combine blocks.0", "recompute blocks.0/2"));
  EXPECT_THAT(again(with(Keeps::products)),
              ElementsAre("recompute blocks.0/0", "host_wait 0", "recompute blocks.0/1", "recompute blocks.0/2"));
  EXPECT_THAT(again(with(Keeps::products, false)),
              ElementsAre("recompute blocks.0/0", "recompute blocks.0/1", "recompute blocks.0/2"));
  EXPECT_THAT(again(with(Keeps::all_but_feed_forward)), ::testing::ElementsAreArray(again(with(Keeps::nothing))))
      << "Megatron's module moe has both exchanges in it";
  EXPECT_THAT(again(with(Keeps::all_but_attention)), ElementsAre("recompute blocks.0"));
  const auto peak = [](const RunConfig& c) { return set_up(c).memory.peak_occupied_total; };
  RunConfig whole = with(Keeps::nothing);
  whole.fsdp.activation_checkpointing = false;
  EXPECT_LT(peak(with(Keeps::nothing)), peak(with(Keeps::attention)));
  EXPECT_LE(peak(with(Keeps::attention)), peak(with(Keeps::products)));
  EXPECT_LT(testing::median_step_ms(with(Keeps::products)), testing::median_step_ms(with(Keeps::attention)));
  EXPECT_LT(testing::median_step_ms(with(Keeps::attention)), testing::median_step_ms(with(Keeps::nothing)));
  EXPECT_LT(testing::median_step_ms(whole), testing::median_step_ms(with(Keeps::products)));
  const RunConfig experts_alone = with(Keeps::all_but_feed_forward), attention_alone = with(Keeps::all_but_attention);
  const auto deep_peak = [&](RunConfig c) { return c.model.layers = 6, peak(c); };
  EXPECT_LT(deep_peak(with(Keeps::nothing)), deep_peak(experts_alone));
  EXPECT_LT(deep_peak(experts_alone), deep_peak(attention_alone));
  EXPECT_LE(deep_peak(attention_alone), deep_peak(whole));
  EXPECT_LT(testing::median_step_ms(whole), testing::median_step_ms(attention_alone));
  EXPECT_LT(testing::median_step_ms(attention_alone), testing::median_step_ms(experts_alone));
  EXPECT_LT(testing::median_step_ms(experts_alone), testing::median_step_ms(with(Keeps::nothing)));
  EXPECT_THAT(error_of([](RunConfig& c) {
                c.fsdp.activation_checkpointing = true;
                c.fsdp.checkpoint_keeps = Keeps::products;
                c.fsdp.expert_unit = config::ExpertUnit::module;
              }),
              HasSubstr("fsdp.checkpoint_keeps = \"products\" does not go with fsdp.expert_unit = \"module\""));
}

TEST(ExpertParallel, WhatDoesNotGoWithItSaysSo) {
  EXPECT_THAT(error_of([](RunConfig& c) { c.mesh.expert = 3; }), HasSubstr("does not divide model.experts = 4"));
  EXPECT_THAT(error_of([](RunConfig& c) { c.model.experts = c.model.active_experts = 0; }),
              HasSubstr("model.experts is 0"));
  EXPECT_THAT(error_of([](RunConfig& c) { c.mesh.ranks = 2, c.mesh.expert = 4; }), HasSubstr("shard group of 2 ranks"));
  EXPECT_THAT(error_of([](RunConfig& c) { c.fsdp.layout = config::Layout::flat, c.mesh.expert = 4; }),
              HasSubstr("per_param"));
  EXPECT_THAT(error_of([](RunConfig& c) { c.mesh.expert_imbalance = 3; }), HasSubstr("expected 1 to 2"));
  EXPECT_THAT(error_of([](RunConfig& c) { c.fsdp.cpu_offload = config::CpuOffload::all; }), HasSubstr("cpu_offload"));
}

}  // namespace
}  // namespace fsdpbench::engine
