#include "clock/cluster_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
  config::Cluster busy = h100;  // all but two multiprocessors
  busy.intra.collective_sms = 130;
  ClusterUse copies;
  copies.algorithm = Algorithm::copy_engine;
  EXPECT_EQ(step_ns(llama_like(8), busy, copies), step(Algorithm::copy_engine, true));

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

plan::ModuleWork block_of(const schedule::Training& training, config::Norm norm, int token_ranks) {
  config::Model model = training.config.model;
  model.norm = norm;
  return plan::module_work(plan::tensor_part(model, training.plan.mesh.tensor), training.config.train.batch_per_rank,
                           training.config.train.seq_len, token_ranks)[2];
}

double forward_ns(const schedule::Training& training, const OpTimes& times) {
  const std::vector<schedule::Op>& ops = training.schedules.steady().ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind == schedule::OpKind::forward && ops[i].module == 2) return times.steps.back()[i].run_ns;
  }
  return -1;
}

/// nanotron's norms, and PyTorch's on a GPU whose kernels were measured, are one kernel; transformers' are several.
TEST(ClusterTimes, NormsAreAsManyKernelsAsTheirFrameworkCalls) {
  using enum config::Simulate::Framework;
  for (const auto& [framework, measured, norm] : {std::tuple{own, true, config::Norm::rms},
                                                  {own, false, config::Norm::rms},
                                                  {pytorch, false, config::Norm::rms},
                                                  {pytorch, true, config::Norm::layer},
                                                  {transformers, true, config::Norm::rms},
                                                  {nanotron, false, config::Norm::layer}}) {
    config::RunConfig c = llama_like(8);
    ASSERT_EQ(c.model.norm, config::Norm::rms);
    c.simulate.framework = framework;
    const testing::ScheduleCase made = testing::make_case(c);
    ClusterUse use;
    use.contention = false;
    use.measured = measured;
    config::Cluster machine = cluster("dgx-h100");
    machine.measured = {};
    machine.measured.eager_fraction = 0.5;
    GpuRates rates = gpu_rates(machine, DType::bf16);
    if (measured && framework != own) rates.apart_fraction = 0.5;
    if (measured) rates.measured = machine.measured;
    const ComputeCost cost(rates, use.framework, DType::bf16);
    EXPECT_EQ(forward_ns(made, cluster_times(made, machine, use)),
              std::nearbyint(cost.module_seconds(block_of(made, norm, 1), Pass::forward) * 1e9));
  }
}

TEST(ClusterTimes, SamplesOfLayersAreRows) {
  config::RunConfig c = testing::decoder_config(4, 8);
  c.model.kind = config::ModelKind::mlp;
  c.train.batch_per_rank = 1 << 20;
  const testing::ScheduleCase made = testing::make_case(c);
  const config::Cluster h100 = cluster("dgx-h100");
  ClusterUse use;
  use.contention = false;
  const ComputeCost cost(gpu_rates(h100, c.fsdp.param_dtype), {}, c.fsdp.param_dtype);
  EXPECT_EQ(forward_ns(made, cluster_times(made, h100, use)),
            std::nearbyint(cost.module_seconds(plan::module_work(c.model, 1 << 20, 1)[2], Pass::forward) * 1e9));
}

TEST(ClusterTimes, CollectivesCostWhatTheirGroupsDo) {
  config::RunConfig c = llama_like(32);
  c.mesh.shard = 8;
  c.mesh.replicate = 4;
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  const testing::ScheduleCase made = testing::make_case(c);
  for (const Placement placement : {Placement::packed, Placement::spread}) {
    const config::Cluster machine = cluster("dgx-h100");
    ClusterUse use;
    use.placement = placement;
    const OpTimes times = cluster_times(made, machine, use);
    const std::vector<schedule::Op>& ops = made.schedules.steady().ops;
    int gathers = 0, reductions = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].is_collective()) continue;
      const bool whole = ops[i].kind == schedule::OpKind::all_reduce,
                 scatter = ops[i].kind == schedule::OpKind::reduce_scatter;
      if (!whole && !scatter && ops[i].kind != schedule::OpKind::all_gather) continue;
      ++(whole ? reductions : gathers);
      // Eight neighbours, or four ranks eight apart.
      const bool one_node = whole == (placement == Placement::spread);
      const GroupShape shape = whole      ? one_node ? GroupShape{4, 1, 4} : GroupShape{4, 4, 1}
                                    : one_node ? GroupShape{8, 1, 8}
                                          : GroupShape{8, 4, 2};
      const double bytes = static_cast<double>(ops[i].collective()->bytes()) * (whole ? 1 : 8);
      const CollectiveCost cost = collective_cost(machine,
                                                  whole     ? Collective::all_reduce
                                                  : scatter ? Collective::reduce_scatter
                                                            : Collective::all_gather,
                                                  bytes, shape);
      EXPECT_EQ(times.steps.back()[i].run_ns, std::nearbyint(cost.latency_s * 1e9)) << i;
      EXPECT_EQ(times.steps.back()[i].link_ns, std::nearbyint(cost.transfer_s * 1e9)) << i;
      EXPECT_EQ(times.steps.back()[i].fabric, static_cast<int>(cost.fabric)) << i;
    }
    EXPECT_GT(gathers, 0);
    EXPECT_GT(reductions, 0);
    EXPECT_EQ(times.workspace_bytes, 2 * 33'554'432);
  }
  EXPECT_EQ(library_bytes(cluster("dgx-a100")), 2 * 8'519'680);
}

/// Computation that is hidden behind collectives as a whole is slowed by all that their rate takes.
TEST(ClusterTimes, HiddenComputationIsSlowedByTheRateOfTheLargestMessages) {
  config::Cluster machine = cluster("dgx-h100");
  machine.inter.nic_achieved_gb_per_s = 20;  // 160 GB/s a node, of 371 at which collectives hold all they ever do
  machine.intra.ramp_mb = 0;
  config::RunConfig c = llama_like(16);
  c.train.seq_len = 64;
  const testing::ScheduleCase made = testing::make_case(c);
  ClusterUse without;
  without.contention = false;
  const OpTimes beside = cluster_times(made, machine), alone = cluster_times(made, machine, without);
  const ComputeCost cost(gpu_rates(machine, DType::bf16), {}, DType::bf16);
  const GpuLoad load = beside_collective(machine, 160e9);
  double most = 0;
  const plan::ModuleWork block = block_of(made, config::Norm::rms, 1);
  const std::vector<schedule::Op>& ops = made.schedules.steady().ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != schedule::OpKind::forward || ops[i].module != 3) continue;
    most = std::max(most, beside.steps.back()[i].run_ns / alone.steps.back()[i].run_ns);
  }
  EXPECT_NEAR(most, cost.module_seconds(block, Pass::forward, load) / cost.module_seconds(block, Pass::forward), 1e-4);
  EXPECT_GT(most, 1.01);
  config::RunConfig replicas = llama_like(16);  // they gather nothing, and reduce at the rate of their own group
  replicas.fsdp.strategy = config::Strategy::no_shard;
  replicas.mesh.shard = 1;
  replicas.mesh.replicate = 16;
  EXPECT_LT(step_ns(replicas, machine, without), step_ns(replicas, machine));
}

/// Exchanges of a pass, in order, and what computes beside each: half of the part after it (1) or before it (-1), or
/// half of the one after by each of the ranks (2).
TEST(ClusterTimes, NanotronHidesEachExchangeBehindItsProducts) {
  config::RunConfig config = llama_like(8);
  config.mesh = {8, 4, 1, 2};
  config.mesh.sequence_parallel = true;
  config.model.norm = config::Norm::layer;
  ClusterUse use;
  use.contention = false;
  config::Cluster machine = cluster("dgx-h100");  // with links so slow that no exchange is hidden as a whole
  machine.intra.all_gather_gb_per_s = machine.intra.reduce_scatter_gb_per_s = 0.05;
  const auto times_of = [&](config::Simulate::Framework framework) {
    config.simulate.framework = framework;
    return cluster_times(testing::make_case(config), machine, use).steps.back();
  };
  const StepCosts apart = times_of(config::Simulate::Framework::pytorch),
                  beside = times_of(config::Simulate::Framework::nanotron);
  const testing::ScheduleCase made = testing::make_case(config);
  const std::vector<schedule::Op>& ops = made.schedules.steady().ops;
  using Hides = std::vector<int>;
  const auto last = static_cast<int>(made.sizes.size()) - 1;
  std::map<std::pair<int, bool>, Hides> all;  // by module and pass: of its exchanges
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].lane != Lane::tensor || !ops[i].is_collective()) continue;
    const auto of_module = [&](const schedule::Op& op) {
      return op.module == ops[i].module && op.lane == Lane::compute;
    };
    std::size_t before = i, after = i;
    while (!of_module(ops[--before])) {
    }
    while (!of_module(ops[++after])) {
    }
    const bool back = ops[before].kind == schedule::OpKind::backward;
    Hides& mine = all[{ops[i].module, back}];
    const Hides expected = ops[i].module == 0      ? back ? Hides{1} : Hides{0}
                                : ops[i].module == last ? back ? Hides{1, -1, 0} : Hides{2, 2}
                                : back ? Hides{2, 1, -1, 2, 1, -1, 0}
                                                   : Hides{2, 0, 2, 0};
    ASSERT_LT(mine.size(), expected.size()) << i;
    const int hides = expected[mine.size()];
    mine.push_back(hides);
    const double hidden = hides == 0 ? 0 : hides == -1 ? beside[before].run_ns / 2 : beside[after].run_ns / 2 / hides;
    EXPECT_LT(hidden, apart[i].run_ns + apart[i].link_ns);
    const OpCost &was = apart[i], &is = beside[i];
    EXPECT_NEAR(is.run_ns, std::max(0.0, was.run_ns - hidden), 2) << i;
    EXPECT_NEAR(is.link_ns, std::max(0.0, was.link_ns - std::max(0.0, hidden - was.run_ns)), 2) << i;
  }
  EXPECT_EQ((all[{2, true}].size()), 7U);
}

TEST(ClusterTimes, SaysWhichRateOfTheHostIsMissing) {
  config::RunConfig c = llama_like(8);
  c.fsdp.cpu_offload = config::CpuOffload::all;
  for (const char* key : {"pcie_gb_per_s", "memory_gb_per_s"}) {
    config::Cluster h100 = cluster("dgx-h100");
    h100.host.pcie_gb_per_s = h100.host.memory_gb_per_s = 40;
    (key[0] == 'p' ? h100.host.pcie_gb_per_s : h100.host.memory_gb_per_s) = 0;
    try {
      step_ns(c, h100);
      ADD_FAILURE() << key;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("host.") + key), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace fsdpbench::clock
