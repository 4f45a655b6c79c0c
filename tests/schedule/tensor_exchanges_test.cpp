// Exchanges of ranks that split layers, and where they are in a step: exact orders, and none without such ranks.
#include "schedule/tensor_exchanges.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "schedule/print_schedule.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using ::testing::ElementsAre;

testing::ScheduleCase split_in_two(int blocks, const std::function<void(config::RunConfig&)>& change = {}) {
  config::RunConfig config = testing::decoder_config(blocks, 2);
  config.mesh = {4, 2, 1, 2};
  if (change) change(config);
  return testing::make_case(config);
}

/// Passes of modules and exchanges, as the host issues them.
std::vector<std::string> passes(const testing::ScheduleCase& c) {
  std::vector<std::string> names;
  for (const Op& op : c.schedules.steady().ops) {
    const bool pass = op.kind == OpKind::forward || op.kind == OpKind::recompute || op.kind == OpKind::backward;
    if (pass || op.group() == Group::tensor) names.push_back(op_name(c.plan, op));
  }
  return names;
}

TEST(TensorExchanges, StandBetweenThePartsOfEveryPass) {
  EXPECT_THAT(passes(split_in_two(1)),
              ElementsAre("forward embedding/0", "tensor_all_reduce embedding",                        //
                          "forward blocks.0/0", "tensor_all_reduce blocks.0",                          //
                          "forward blocks.0/1", "tensor_all_reduce blocks.0", "forward blocks.0/2",    //
                          "forward head/0", "tensor_all_gather head", "forward head/1",                //
                          "backward head/0", "tensor_all_reduce head", "backward head/1",              //
                          "backward blocks.0/0", "tensor_all_reduce blocks.0",                         //
                          "backward blocks.0/1", "tensor_all_reduce blocks.0", "backward blocks.0/2",  //
                          "backward embedding"));
}

TEST(TensorExchanges, ARecomputationHasOneAndTheNormsSumsComeFromEachPart) {
  const std::vector<std::string> all = passes(split_in_two(1, [](config::RunConfig& c) {
    c.fsdp.activation_checkpointing = true;
    c.train.clip_norm = 1;
  }));
  const auto recomputed = std::ranges::find(all, "recompute blocks.0/0");
  ASSERT_NE(recomputed, all.end());
  EXPECT_THAT(std::vector(recomputed, recomputed + 4), ElementsAre("recompute blocks.0/0", "tensor_all_reduce blocks.0",
                                                                   "recompute blocks.0/1", "backward blocks.0/0"));
  EXPECT_EQ(all.back(), "gather_norm");
}

/// Every layer gathers the tokens before it, and leaves each rank its own of the sum; in backward, what it multiplies
/// is gathered again.
TEST(TensorExchanges, OfTokensStandBeforeAndAfterEveryLayer) {
  const std::vector<std::string> all = passes(split_in_two(1, [](config::RunConfig& c) {
    c.mesh.sequence_parallel = true;
    c.fsdp.activation_checkpointing = true;
  }));
  EXPECT_THAT(all, ElementsAre("forward embedding/0", "tensor_reduce_scatter embedding", "forward embedding/1",  //
                               "forward blocks.0/0", "tensor_all_gather blocks.0",                               //
                               "forward blocks.0/1", "tensor_reduce_scatter blocks.0",                           //
                               "forward blocks.0/2", "tensor_all_gather blocks.0",                               //
                               "forward blocks.0/3", "tensor_reduce_scatter blocks.0", "forward blocks.0/4",     //
                               "forward head/0", "tensor_all_gather head",                                       //
                               "forward head/1", "tensor_all_gather head", "forward head/2",                     //
                               "backward head/0", "tensor_all_gather head",                                      //
                               "backward head/1", "tensor_reduce_scatter head",                                  //
                               "backward head/2", "tensor_all_reduce head", "backward head/3",                   //
                               "recompute blocks.0/0", "tensor_all_gather blocks.0",                             //
                               "recompute blocks.0/1", "tensor_reduce_scatter blocks.0",                         //
                               "recompute blocks.0/2", "tensor_all_gather blocks.0", "recompute blocks.0/3",     //
                               "backward blocks.0/0", "tensor_all_gather blocks.0",                              //
                               "backward blocks.0/1", "tensor_all_gather blocks.0",                              //
                               "backward blocks.0/2", "tensor_reduce_scatter blocks.0",                          //
                               "backward blocks.0/3", "tensor_all_gather blocks.0",                              //
                               "backward blocks.0/4", "tensor_all_gather blocks.0",                              //
                               "backward blocks.0/5", "tensor_reduce_scatter blocks.0",                          //
                               "backward blocks.0/6", "tensor_all_reduce blocks.0", "backward blocks.0/7",       //
                               "backward embedding/0", "tensor_all_gather embedding", "backward embedding/1"));
}

TEST(TensorExchanges, AreOnTheirOwnLaneAndCommunicatorInPlace) {
  for (const bool tokens : {false, true}) {
    const testing::ScheduleCase c =
        split_in_two(2, [tokens](config::RunConfig& config) { config.mesh.sequence_parallel = tokens; });
    for (const Op& op : c.schedules.steady().ops) {
      EXPECT_EQ(op.lane == Lane::tensor, op.group() == Group::tensor) << op_name(c.plan, op);
      EXPECT_EQ(op.lane == Lane::tensor, op.exchanges_parts()) << op_name(c.plan, op);
      if (op.lane == Lane::tensor) {
        EXPECT_EQ(op.collective()->input, op.collective()->output);
      }
    }
  }
}

TEST(TensorExchanges, TheNextUnitsParametersAreCopiedOutBesideThem) {
  // The embedding's sum is waited for by the first block, not by the copy that stands before it on the same lane.
  const testing::ScheduleCase c = split_in_two(1);
  const std::vector<Op>& ops = c.schedules.steady().ops;
  const auto sum = std::ranges::find(ops, OpKind::tensor_all_reduce, &Op::kind);
  const auto waits_for_it = [&](const Op& op) {
    return std::ranges::find(op.waits, sum->record, &Wait::event) != op.waits.end();
  };
  const auto first = std::find_if(sum, ops.end(), waits_for_it);
  EXPECT_EQ(op_name(c.plan, *first), "forward blocks.0/0");
  EXPECT_TRUE(std::any_of(sum, first, [](const Op& op) { return op.kind == OpKind::copy_out; }));
}

TEST(TensorExchanges, EachPartHasANumberOfItsOwn) {
  int next = 0;
  for (int module = 0; module < 3; ++module) {
    for (const OpKind kind : {OpKind::forward, OpKind::recompute, OpKind::backward}) {
      for (int part = 0; part < 16; ++part) EXPECT_EQ(id_of_part(kind, module, part), next++);
    }
  }
}

/// Before rows leave, the ranks tell each other how many, and the host waits; a recomputation reads again what the
/// device has kept.
TEST(TensorExchanges, TheHostWaitsForNumbersOfRows) {
  config::RunConfig config = testing::decoder_config(1, 4);
  config.model.experts = 4;
  config.model.active_experts = 2;
  config.mesh.expert = 2;
  config.fsdp.activation_checkpointing = true;
  std::vector<plan::ModuleSizes> sizes = testing::made_up_sizes(plan::make_plan(config));
  sizes[1].forward_parts[0].told = 1;
  sizes[1].recompute_parts = {{.flops = 1e6, .told = 1}, {1e6}};
  const testing::ScheduleCase c = make_training(config, sizes);
  std::vector<std::string> names;
  for (const Op& op : c.schedules.steady().ops) {
    if (op.module != 1 && op.kind != OpKind::host_wait) continue;
    if (op.kind == OpKind::expert_counts) {
      EXPECT_EQ(op.collective()->count, 1);
      EXPECT_EQ(op.collective()->group, Group::expert);
      EXPECT_EQ(op.collective()->dtype, DType::i32);
    }
    names.push_back(op_name(c.plan, op));
  }
  EXPECT_THAT(names, ElementsAre("forward blocks.0/0", "expert_counts blocks.0", "host_wait 0",  //
                                 "expert_dispatch blocks.0", "forward blocks.0/1",               //
                                 "expert_combine blocks.0", "forward blocks.0/2",                //
                                 "recompute blocks.0/0", "host_wait 0", "recompute blocks.0/1",  //
                                 "backward blocks.0/0", "expert_dispatch blocks.0", "backward blocks.0/1",
                                 "expert_combine blocks.0", "backward blocks.0/2"));
}

/// Experts that are gathered with their block are read by all parts of its passes.
TEST(TensorExchanges, EveryPartReadsTheExpertsOfItsBlock) {
  config::RunConfig config = testing::decoder_config(1, 4);
  config.model.experts = 4;
  config.model.active_experts = 2;
  config.mesh.expert = 2;
  const testing::ScheduleCase c = testing::make_case(config);
  const Schedule& steady = c.schedules.steady();
  int passes = 0;
  for (const Op& op : steady.ops) {
    const auto* forward = std::get_if<Forward>(&op.work);
    const auto* backward = std::get_if<Backward>(&op.work);
    if (forward == nullptr && backward == nullptr) continue;
    const BufferId experts = forward != nullptr ? forward->experts : backward->experts;
    EXPECT_EQ(experts != kNoBuffer, op.module == 1);
    if (experts == kNoBuffer) continue;
    EXPECT_EQ(steady.buffers[experts].role, BufferRole::unsharded);
    EXPECT_EQ(steady.buffers[experts].unit, c.plan.units[1].experts);
    ++passes;
  }
  EXPECT_EQ(passes, 6);
}

/// Tokens come in at the first module, and what they are measured by at the last.
TEST(Passes, ReadTheBatchAtBothEnds) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(2, 4));
  for (const Op& op : c.schedules.steady().ops) {
    if (const auto* work = std::get_if<Forward>(&op.work)) {
      EXPECT_EQ(work->batch_inputs != kNoBuffer, op.module == 0);
      EXPECT_EQ(work->batch_targets != kNoBuffer, op.module == 3);
      EXPECT_EQ(work->loss != kNoBuffer, op.module == 3);
    } else if (const auto* back = std::get_if<Backward>(&op.work)) {
      EXPECT_EQ(back->batch_inputs != kNoBuffer, op.module == 0);
    }
  }
}

TEST(TensorExchanges, WithoutSuchRanksNothingIsInParts) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(2, 4));
  for (const Op& op : c.schedules.steady().ops) {
    EXPECT_EQ(part_of(op), -1);
    EXPECT_NE(op.lane, Lane::tensor);
  }
}

TEST(TensorExchanges, UnitsAreShardedAsEver) {
  // Units have the collectives of the whole model in the same order; only their parameters are fewer.
  const testing::ScheduleCase c = split_in_two(3), whole = testing::make_case(testing::decoder_config(3, 2));
  EXPECT_EQ(collective_order(c.plan, c.schedules.steady()), collective_order(whole.plan, whole.schedules.steady()));
  EXPECT_LT(c.plan.units[1].layout.parameter_numel(), whole.plan.units[1].layout.parameter_numel());
  EXPECT_EQ(c.plan.shapes.parameter_count(), whole.plan.shapes.parameter_count());
}

}  // namespace
}  // namespace fsdpbench::schedule
