#include "clock/cluster_times.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "clock/forecast.h"
#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

config::RunConfig llama_like(int ranks) {
  config::RunConfig config = testing::decoder_config(6, ranks);
  config.model.width = 4096;
  config.model.heads = 32;
  config.model.kv_heads = 8;
  config.model.ffn_width = 14336;
  config.model.vocab = 32000;
  config.train.seq_len = 4096;
  config.train.batch_per_rank = 1;
  config.fsdp.param_dtype = config.fsdp.reduce_dtype = DType::bf16;
  return config;
}

/// Nanoseconds of a step in the steady state, the same on all ranks.
double step_ns(const config::RunConfig& config, const config::Cluster& cluster, const ClusterUse& use = {}) {
  const testing::ScheduleCase c = testing::make_case(config);
  const OpTimes times = cluster_times(c, cluster, use);
  return forecast(c, times).slowest_ns();
}

config::Cluster cluster(const char* name) { return config::load_cluster(name); }

TEST(ClusterTimes, StepsFollowTheMachine) {
  const double a100 = step_ns(llama_like(8), cluster("dgx-a100")), h100 = step_ns(llama_like(8), cluster("dgx-h100"));
  EXPECT_LT(h100, a100);
  EXPECT_GT(step_ns(llama_like(64), cluster("ethernet-h100")), step_ns(llama_like(64), cluster("dgx-h100")));
  EXPECT_GT(step_ns(llama_like(64), cluster("dgx-h100")), h100) << "more ranks, and a network between them";
  ClusterUse spread;
  spread.placement = Placement::spread;
  config::RunConfig hybrid = llama_like(64);
  hybrid.fsdp.strategy = config::Strategy::hybrid_shard;
  hybrid.mesh = {64, 8, 8};
  EXPECT_GT(step_ns(hybrid, cluster("ethernet-h100"), spread), step_ns(hybrid, cluster("ethernet-h100")))
      << "shard groups inside nodes are what hybrid sharding is for";
  config::RunConfig layers = testing::decoder_config(4, 8);
  layers.model.kind = config::ModelKind::mlp;
  layers.train.batch_per_rank = 1 << 20;
  const double many = step_ns(layers, cluster("dgx-h100"));
  layers.train.batch_per_rank = 1;
  EXPECT_GT(many, 2 * step_ns(layers, cluster("dgx-h100"))) << "each sample is a row";
}

TEST(ClusterTimes, ContentionCostsAndNeverMoreThanItsSlowdownOfTheWholeStep) {
  ClusterUse without;
  without.contention = false;
  for (const char* name : {"dgx-a100", "dgx-h100", "ethernet-h100"}) {
    const double alone = step_ns(llama_like(16), cluster(name), without),
                 beside = step_ns(llama_like(16), cluster(name));
    EXPECT_GT(beside, alone) << name;
    EXPECT_LT(beside, 1.6 * alone) << name;
  }
  EXPECT_EQ(step_ns(llama_like(1), cluster("dgx-h100"), without), step_ns(llama_like(1), cluster("dgx-h100")))
      << "one rank communicates nothing";
}

/// Replicas reduce for long over a network that feeds few blocks of a collective, whatever the links between their
/// shards could feed: a faster network slows computation more as long as it lasts, and a shard's own exchanges are
/// short.
TEST(ClusterTimes, ComputationBesideASlowReductionIsHardlySlower) {
  config::RunConfig hybrid = llama_like(16);
  hybrid.fsdp.strategy = config::Strategy::hybrid_shard;
  hybrid.mesh = {16, 4, 4};
  hybrid.train.batch_per_rank = 4;
  const testing::ScheduleCase c = testing::make_case(hybrid);
  const auto backward_ns = [&](bool contention) {
    ClusterUse use;
    use.contention = contention;
    const StepCosts costs = cluster_times(c, cluster("gcp-a2"), use).steps.back();
    double ns = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (c.schedules.steady().ops[i].kind == schedule::OpKind::backward) ns += costs[i].run_ns;
    }
    return ns;
  };
  EXPECT_GT(backward_ns(true), 1.001 * backward_ns(false));
  EXPECT_LT(backward_ns(true), 1.05 * backward_ns(false));
}

TEST(ClusterTimes, NanotronComputesBesideItsExchanges) {
  config::RunConfig config = llama_like(8);
  config.mesh = {8, 4, 1, 2};
  config.mesh.sequence_parallel = true;
  config.simulate.framework = config::Simulate::Framework::pytorch;
  const auto scatters = [&](schedule::OpKind pass) {
    const testing::ScheduleCase c = testing::make_case(config);
    const OpTimes times = cluster_times(c, cluster("dgx-h100"));
    const std::vector<schedule::Op>& ops = c.schedules.steady().ops;
    double ns = 0;
    schedule::OpKind before = schedule::OpKind::forward;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].lane == Lane::compute && ops[i].has_work()) before = ops[i].kind;
      if (ops[i].kind != schedule::OpKind::tensor_reduce_scatter || before != pass) continue;
      ns += times.steps.back()[i].run_ns + times.steps.back()[i].link_ns;
    }
    return ns;
  };
  const double forward = scatters(schedule::OpKind::forward), backward = scatters(schedule::OpKind::backward);
  config.simulate.framework = config::Simulate::Framework::nanotron;
  EXPECT_EQ(scatters(schedule::OpKind::forward), forward) << "the whole product comes before it";
  EXPECT_LT(scatters(schedule::OpKind::backward), 0.2 * backward) << "the gradient of the weight is beside it";
}

// pytorch/pytorch 172714, 8 H100: a product of 8192 x 8192 x 8192 and an all-gather of 64 MiB from each rank take 2.02
// ms together, and 1.77 if copy engines gather.
TEST(ClusterTimes, CopyEnginesLeaveMultiprocessorsToComputation) {
  const config::Cluster h100 = cluster("dgx-h100");
  const auto step = [&](Algorithm algorithm, bool contention) {
    ClusterUse use;
    use.algorithm = algorithm;
    use.contention = contention;
    return step_ns(llama_like(8), h100, use);
  };
  EXPECT_GT(step(Algorithm::copy_engine, false), step(Algorithm::symmetric, false)) << "copies are no faster";
  EXPECT_LT(step(Algorithm::symmetric, true), step(Algorithm::ring, true));
  EXPECT_LT(step(Algorithm::copy_engine, true), step(Algorithm::ring, true));

  const auto gathers = [&](const char* name, Algorithm algorithm) {
    ClusterUse use;
    use.algorithm = algorithm;
    const testing::ScheduleCase c = testing::make_case(llama_like(8));
    const OpTimes times = cluster_times(c, cluster(name), use);
    for (std::size_t i = 0; i < times.choices.size(); ++i) {
      const schedule::Op& op = c.schedules.steady().ops[i];
      if (op.kind == schedule::OpKind::all_gather && op.unit == 1) return times.choices[i];
    }
    return std::string();
  };
  EXPECT_EQ(gathers("dgx-h100", Algorithm::symmetric), "symmetric, Simple, intra");
  EXPECT_EQ(gathers("dgx-h100", Algorithm::copy_engine), "copy_engine, Simple, intra");
  EXPECT_EQ(gathers("hgx-b200", Algorithm::symmetric), "copy_engine, Simple, intra") << "27 million numbers of a rank";
}

/// Rows of the products that are no multiples of 16 bytes, and rates of them as PyTorch calls its libraries.
TEST(ClusterTimes, AFrameworkCallsItsLibrariesAsWasMeasured) {
  config::RunConfig c = llama_like(8);
  c.model.ffn_width = 1021;
  c.model.vocab = 1021;
  ClusterUse use;
  use.measured = true;
  const auto ns = [&](config::Simulate::Framework framework, double eager, double odd, double eager_odd) {
    config::Cluster machine = cluster("dgx-h100");
    machine.measured = {.product_tflops = 600,
                        .product_fill = 500,
                        .odd_output_tflops = odd,
                        .odd_input_tflops = odd,
                        .pass_fraction = 0.8,
                        .eager_fraction = eager,
                        .eager_odd_output_tflops = eager_odd,
                        .eager_odd_input_tflops = eager_odd,
                        .attention_64_tflops = 200,
                        .attention_128_tflops = 300,
                        .attention_half_length = 500};
    c.simulate.framework = framework;
    return step_ns(c, machine, use);
  };
  using enum config::Simulate::Framework;
  EXPECT_EQ(ns(pytorch, 0.5, 300, 100), ns(pytorch, 0.5, 100, 100)) << "only PyTorch's own count";
  EXPECT_GT(ns(pytorch, 0.5, 300, 100), ns(pytorch, 0.5, 300, 300));
  EXPECT_EQ(ns(own, 0.5, 300, 100), ns(own, 0.5, 300, 300));
  EXPECT_GT(ns(own, 0.5, 100, 300), ns(own, 0.5, 300, 300));
  EXPECT_EQ(ns(pytorch, 0, 300, 100), ns(pytorch, 0, 300, 300)) << "nothing was measured of it";
  EXPECT_GT(ns(transformers, 0.5, 300, 100), ns(pytorch, 0.5, 300, 100)) << "norms are several kernels";
  EXPECT_GT(ns(pytorch, 0.25, 300, 100), ns(pytorch, 0.5, 300, 100)) << "copies are slower";
}

TEST(ClusterTimes, FrameworksAndCheckpointing) {
  const config::Cluster h100 = cluster("dgx-h100");
  const double eager = step_ns(llama_like(8), h100);
  EXPECT_EQ(config::Simulate{}.efficiency.value, kTypicalEfficiency);
  ClusterUse compiled, slower, loss, optimizer;
  loss.framework.fused_loss = true;
  optimizer.framework.fused_optimizer = false;
  EXPECT_LT(step_ns(llama_like(8), h100, loss), eager);
  EXPECT_GT(step_ns(llama_like(8), h100, optimizer), eager);
  compiled.framework.compiled = true;
  EXPECT_LT(step_ns(llama_like(8), h100, compiled), step_ns(llama_like(8), h100, loss)) << "blocks are still eager";
  ClusterUse eager_loss;
  eager_loss.framework.eager_loss = true;
  EXPECT_EQ(step_ns(llama_like(8), h100, eager_loss), eager);
  eager_loss.framework.compiled = true;
  EXPECT_GT(step_ns(llama_like(8), h100, eager_loss), step_ns(llama_like(8), h100, compiled)) << "blocks alone";
  EXPECT_LT(step_ns(llama_like(8), h100, eager_loss), eager);
  slower.framework.efficiency = kTypicalEfficiency / 2;
  EXPECT_LT(step_ns(llama_like(8), h100, compiled), eager);
  EXPECT_GT(step_ns(llama_like(8), h100, slower), 1.5 * eager);
  config::RunConfig c = llama_like(8);
  c.fsdp.activation_checkpointing = true;
  const double all = step_ns(c, h100);
  EXPECT_GT(all, 1.15 * eager);
  EXPECT_LT(all, 1.45 * eager) << "one more forward of three passes' time";
  c.fsdp.checkpoint_every = 2;
  const double half = step_ns(c, h100);
  EXPECT_NEAR(half, (all + eager) / 2, 0.05 * eager);
  c.fsdp.checkpoint_every = 1;
  c.fsdp.recompute_share = 0.5;
  EXPECT_NEAR(step_ns(c, h100), half, 0.05 * eager);
  c.fsdp.recompute_share = 1;
  double more = all;
  for (const auto keeps : {config::CheckpointKeeps::attention, config::CheckpointKeeps::every_second_product,
                           config::CheckpointKeeps::products}) {
    c.fsdp.checkpoint_keeps = keeps;
    EXPECT_LT(step_ns(c, h100), more);
    more = step_ns(c, h100);
  }
  EXPECT_GT(more, eager) << "what only moves bytes is computed again";
  more = all;
  for (const auto keeps : {config::CheckpointKeeps::all_but_feed_forward, config::CheckpointKeeps::all_but_attention}) {
    c.fsdp.checkpoint_keeps = keeps;
    EXPECT_LT(step_ns(c, h100), more);
    more = step_ns(c, h100);
  }
  EXPECT_GT(more, eager);
  c.fsdp.checkpoint_keeps = config::CheckpointKeeps::nothing;
  config::RunConfig fp8 = llama_like(8);
  fp8.fsdp.fp8_products = true;
  EXPECT_LT(step_ns(fp8, h100), eager);
}

TEST(ClusterTimes, OffloadedStateCrossesPcieAndIsUpdatedAtTheHostsRate) {
  config::RunConfig c = llama_like(8);
  c.fsdp.cpu_offload = config::CpuOffload::all;
  config::Cluster h100 = cluster("dgx-h100");
  h100.host.pcie_gb_per_s = 40;
  h100.host.memory_gb_per_s = 80;
  const testing::ScheduleCase made = testing::make_case(c);
  const OpTimes times = cluster_times(made, h100);
  const std::vector<schedule::Op>& ops = made.schedules.steady().ops;
  const auto shard = static_cast<double>(made.plan.units[1].layout.shard_numel);
  int copies = 0, updates = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].unit != 1) continue;
    const double ns = times.steps.back()[i].run_ns;
    if (ops[i].is_transfer()) {
      EXPECT_NEAR(ns, shard * 4 / 40, 1);
      ++copies;
    }
    if (ops[i].kind == schedule::OpKind::optimizer) {  // reads gradient, parameters and moments, writes all but that
      EXPECT_NEAR(ns, shard * 4 * 7 / 80, 1);
      ++updates;
    }
  }
  EXPECT_EQ(copies, 3);
  EXPECT_EQ(updates, 1);
  h100.host.memory_gb_per_s = 0;
  EXPECT_THROW(cluster_times(made, h100), ConfigError);
}

}  // namespace
}  // namespace fsdpbench::clock
