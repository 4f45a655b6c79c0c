// The closed forms against the plan's own sums, which go unit by unit.
#include "plan/communication.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace fsdpbench::plan {
namespace {

using config::RunConfig;
using config::Strategy;

/// Sizes that split without padding.
RunConfig example(Strategy strategy, int shard, int replicate) {
  RunConfig c;
  c.model.layers = 16;
  c.model.width = 256;
  c.model.heads = 8;
  c.model.kv_heads = 8;
  c.model.ffn_width = 512;
  c.fsdp.strategy = strategy;
  c.fsdp.param_dtype = DType::bf16;
  c.mesh = {static_cast<std::int64_t>(shard) * replicate, shard, replicate};
  return c;
}

const Parallelism& named(const std::vector<Parallelism>& all, std::string_view name) {
  for (const Parallelism& p : all) {
    if (p.name == name) return p;
  }
  throw std::logic_error("no such row");
}

double kept_states(const MemoryEstimate& e) { return e.parameters + e.optimizer + e.gradients; }
double kept_states(const Parallelism& p) { return p.parameters + p.optimizer + p.gradients; }

TEST(Parallelism, WireBytesAreThoseOfThePlan) {
  struct Case {
    const char* name;
    Strategy strategy;
    int shard, replicate;
    bool reshards;
  };
  for (const Case& which :
       {Case{"data parallel", Strategy::no_shard, 1, 8, false}, Case{"ZeRO-2", Strategy::shard_grad_op, 8, 1, false},
        Case{"ZeRO-3, full shard", Strategy::full_shard, 8, 1, true},
        Case{"hybrid", Strategy::hybrid_shard, 4, 2, true}, Case{"hybrid", Strategy::hybrid_shard, 2, 4, true}}) {
    for (const std::int64_t micros : {1, 3}) {
      for (const auto mode : {config::AccumulateMode::reduce_each, config::AccumulateMode::no_sync,
                              config::AccumulateMode::reduce_scatter_only}) {
        RunConfig c = example(which.strategy, which.shard, which.replicate);
        c.train.accumulate = micros;
        c.train.accumulate_mode = mode;
        const Plan plan = make_plan(c);
        const CommunicationVolume exact =
            communication_volume(plan, c, {std::vector<bool>(plan.units.size(), which.reshards)});
        const double wire = named(compare_parallelism(plan, c, 0), which.name).wire;
        // Without a shard group there is nothing to scatter, and a replica's all-reduce is each microbatch's or one.
        if (which.shard == 1 && mode == config::AccumulateMode::reduce_scatter_only) continue;
        EXPECT_NEAR(wire, exact.total(), 1e-9 * exact.total()) << which.name << ' ' << micros;
      }
    }
  }
}

TEST(Parallelism, StatesAreThoseOfTheEstimates) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunConfig c = example(Strategy::full_shard, 8, 1);
    c.fsdp.param_dtype = dtype;
    const Plan plan = make_plan(c);
    const std::vector<Parallelism> all = compare_parallelism(plan, c, 1e6);
    const auto p = static_cast<double>(plan.shapes.parameter_count());
    EXPECT_DOUBLE_EQ(named(all, "data parallel").memory() - 1e6, memory_without_fsdp(plan, c).total());
    const MemoryEstimate full = memory_with_fsdp(plan, c);
    EXPECT_NEAR(kept_states(named(all, "ZeRO-3, full shard")), kept_states(full), 1e-9 * kept_states(full));
    EXPECT_DOUBLE_EQ(named(all, "ZeRO-3, full shard").in_flight, full.gathered_units + full.gradient_units);
    // 4 + 12/8 and 2 + 14/8 bytes a parameter in bf16; 8 + 8/8 and 4 + 12/8 in fp32.
    EXPECT_DOUBLE_EQ(kept_states(named(all, "ZeRO-1")), (dtype == DType::bf16 ? 4 + 12.0 / 8 : 8 + 8.0 / 8) * p);
    EXPECT_DOUBLE_EQ(kept_states(named(all, "ZeRO-2")), (dtype == DType::bf16 ? 2 + 14.0 / 8 : 4 + 12.0 / 8) * p);
    EXPECT_DOUBLE_EQ(kept_states(named(all, "tensor")), 2 * p);
    EXPECT_DOUBLE_EQ(kept_states(named(all, "pipeline (1F1B)")), 2 * p);
  }
  const RunConfig hybrid = example(Strategy::hybrid_shard, 4, 2);
  const Plan plan = make_plan(hybrid);
  const double exact = kept_states(memory_with_fsdp(plan, hybrid));
  EXPECT_NEAR(kept_states(named(compare_parallelism(plan, hybrid, 0), "hybrid")), exact, 1e-9 * exact);
}

TEST(Parallelism, Fp32GradientsHaveBytesOfTheirOwn) {
  RunConfig c = example(Strategy::full_shard, 8, 1);
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.fp32_gradients = true;
  const Plan plan = make_plan(c);
  const std::vector<Parallelism> all = compare_parallelism(plan, c, 0);
  const auto p = static_cast<double>(plan.shapes.parameter_count());
  EXPECT_DOUBLE_EQ(named(all, "data parallel").memory(), (2 + 4 + 12) * p);
  EXPECT_DOUBLE_EQ(named(all, "data parallel").memory(), memory_without_fsdp(plan, c).total());
  EXPECT_DOUBLE_EQ(kept_states(named(all, "ZeRO-2")), (2 + 16.0 / 8) * p);
  const MemoryEstimate full = memory_with_fsdp(plan, c);
  EXPECT_DOUBLE_EQ(named(all, "ZeRO-3, full shard").in_flight, full.gathered_units + full.gradient_units);
}

TEST(Parallelism, PipelineAndTensorByHand) {
  RunConfig c = example(Strategy::full_shard, 8, 1);
  c.train.accumulate = 4;
  c.train.batch_per_rank = 2;
  c.train.seq_len = 128;
  const Plan plan = make_plan(c);
  const std::vector<Parallelism> all = compare_parallelism(plan, c, 3.4e6);
  const Parallelism& pipeline = named(all, "pipeline (1F1B)");
  EXPECT_DOUBLE_EQ(pipeline.bubble, 7.0 / 39);                    // 32 microbatches
  EXPECT_DOUBLE_EQ(pipeline.wire, 2.0 * 32 * 2 * 128 * 256 * 2);  // bf16
  EXPECT_DOUBLE_EQ(pipeline.activations, 3.4e6);                  // 8 microbatches of an 8th of the layers
  const Parallelism& tensor = named(all, "tensor");
  EXPECT_DOUBLE_EQ(tensor.wire, 32.0 * 16 * 4 * (2 * 128 * 256 * 2) * 2 * 7 / 8);
  EXPECT_DOUBLE_EQ(tensor.activations, 1.3e6);
  EXPECT_EQ(tensor.needs, "");
  const Parallelism& tokens = named(all, "tensor, tokens too");
  EXPECT_DOUBLE_EQ(tokens.wire, tensor.wire * 10 / 8);
  EXPECT_DOUBLE_EQ(tokens.activations, 3.4e6 / 8);
  EXPECT_EQ(pipeline.needs, "");
  EXPECT_EQ(named(all, "data parallel").bubble, 0);
}

/// What more layers send is what the plan of such a mesh says, but for the gradients of norms.
TEST(Parallelism, TensorRowsAreThoseOfAMesh) {
  for (const bool tokens : {false, true}) {
    const auto differs = [tokens](auto bytes_of) {
      RunConfig c = example(Strategy::full_shard, 8, 1);
      c.train.accumulate = 2;
      const double less = bytes_of(c);
      c.model.layers *= 2;
      return bytes_of(c) - less;
    };
    const double row = differs([tokens](const RunConfig& c) {
      return named(compare_parallelism(make_plan(c), c, 0), tokens ? "tensor, tokens too" : "tensor").wire;
    });
    const double plan = differs([tokens](RunConfig c) {
      c.mesh = {8, 1, 1, 8, tokens};
      c.train.accumulate *= 8;  // one replica takes the global batch
      const Plan mesh = make_plan(c);
      const CommunicationVolume volume = communication_volume(mesh, c, {std::vector<bool>(mesh.units.size(), true)});
      return volume.all_gather + volume.reduce_scatter + (tokens ? 0 : volume.all_reduce);
    });
    EXPECT_NEAR(row, plan, 1e-9 * plan) << tokens;
  }
}

TEST(Parallelism, OneRankSendsNothing) {
  const RunConfig c = example(Strategy::no_shard, 1, 1);
  for (const Parallelism& p : compare_parallelism(make_plan(c), c, 0)) {
    EXPECT_EQ(p.wire, 0) << p.name;
    EXPECT_EQ(p.bubble, 0) << p.name;
    EXPECT_EQ(p.in_flight, 0) << p.name;
  }
}

TEST(Parallelism, WhatTheModelDoesNotGoWithIsSaid) {
  const RunConfig c = example(Strategy::full_shard, 32, 1);
  const std::vector<Parallelism> all = compare_parallelism(make_plan(c), c, 0);
  EXPECT_EQ(named(all, "tensor").needs, "ranks that divide model.heads = 8");
  EXPECT_EQ(named(all, "pipeline (1F1B)").needs, "at most model.layers = 16 ranks");
  EXPECT_EQ(named(all, "hybrid").needs, "");
}

TEST(Parallelism, AHybridGroupIsTheMeshsOrOfEightRanksAtMost) {
  const auto group_of = [](Strategy strategy, int shard, int replicate) {
    const RunConfig c = example(strategy, shard, replicate);
    const Plan plan = make_plan(c);
    const std::vector<Parallelism> all = compare_parallelism(plan, c, 0);
    return kept_states(named(all, "tensor")) * plan.mesh.ranks() / kept_states(named(all, "hybrid"));
  };
  EXPECT_DOUBLE_EQ(group_of(Strategy::hybrid_shard, 2, 4), 2);
  EXPECT_DOUBLE_EQ(group_of(Strategy::no_shard, 1, 8), 8);
  EXPECT_DOUBLE_EQ(group_of(Strategy::full_shard, 16, 1), 8);
  EXPECT_DOUBLE_EQ(group_of(Strategy::full_shard, 18, 1), 6) << "9 are more than a node has";
  EXPECT_DOUBLE_EQ(group_of(Strategy::full_shard, 4, 1), 4);
}

}  // namespace
}  // namespace fsdpbench::plan
