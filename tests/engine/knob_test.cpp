// A knob that does nothing fails here: each one changes exposed time, memory or bytes as the theory says. Times are
// those of a computed clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "account/run_metrics.h"
#include "account/step_breakdown.h"
#include "plan/communication.h"
#include "schedule/policy.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

constexpr double kUnitSeconds = 3e-3;  // a block's forward, and its gather on the link
constexpr int kBlocks = 6;

/// Six blocks on four ranks: a block's forward takes 3 ms, its backward 6 ms, a gather and a reduce-scatter 3 ms each,
/// so that communication is as long as computation.
RunConfig balanced() {
  RunConfig c;
  c.model.layers = kBlocks;
  c.model.width = 256;
  c.model.heads = 4;
  c.model.kv_heads = 4;
  c.model.ffn_width = 512;
  c.model.vocab = 64;  // the root's part is small
  c.mesh.ranks = 4;
  c.train.steps = 3;
  c.train.warmup = 1;
  c.train.seq_len = 64;
  c.train.batch_per_rank = 1;
  const engine::Setup p = set_up(testing::settled(c));
  c.emulate.compute_tflops = p.sizes[1].forward_flops / kUnitSeconds / 1e12;
  const double wire = static_cast<double>(p.plan.units[1].layout.gathered_numel()) * 4 * 3 / 4;
  c.emulate.link_gb_per_s = wire / kUnitSeconds / 1e9;
  return c;
}

account::RunMetrics measure(const RunConfig& asked) {
  const RunConfig c = testing::settled(asked);
  const engine::Setup p = set_up(c);
  const Measurement result = testing::simulate_tiny(c);
  return account::run_metrics({p.schedules, result.traces}, p.plan.groups, 1);
}

constexpr double kUnitMs = kUnitSeconds * 1e3;

TEST(Knob, BackwardPrefetchPreHidesWhatNoneExposes) {
  RunConfig c = balanced();
  const double pre = measure(c).exposed_comm_ms;
  c.fsdp.backward_prefetch.mode = Prefetch::Mode::none;
  const double none = measure(c).exposed_comm_ms;
  // Without prefetching, all but the last unit's gathers wait for the reduce-scatter before them.
  EXPECT_GT(none - pre, 0.8 * (kBlocks - 1) * kUnitMs);
}

TEST(Knob, BackwardPrefetchPostOverlapsWithinOneUnitOfMemory) {
  // With room for one gathered unit, `pre` comes too early to be allowed and its gathers end up behind the
  // reduce-scatters; `post` asks when the unit is free, and its gathers go first.
  RunConfig c = balanced();
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 1, 0};
  const double pre = measure(c).exposed_comm_ms;
  c.fsdp.backward_prefetch.mode = Prefetch::Mode::post;
  const double post = measure(c).exposed_comm_ms;
  EXPECT_GT(pre - post, 0.8 * (kBlocks - 1) * kUnitMs);
}

TEST(Knob, ForwardPrefetchNoneExposesEveryGather) {
  RunConfig c = balanced();
  const double implicit = measure(c).exposed_comm_ms;
  c.fsdp.forward_prefetch.mode = Prefetch::Mode::none;
  const double none = measure(c).exposed_comm_ms;
  EXPECT_GT(none - implicit, 0.8 * (kBlocks - 1) * kUnitMs);
}

TEST(Knob, AStrictLimitOfOneForbidsOverlapInForward) {
  RunConfig c = balanced();
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 2, 0};
  const double two = measure(c).exposed_comm_ms;
  c.fsdp.all_gather_limit.count = 1;
  const double one = measure(c).exposed_comm_ms;
  EXPECT_GT(one - two, 0.8 * (kBlocks - 1) * kUnitMs);
}

TEST(Knob, AByteBudgetOfOneUnitIsAStrictLimitOfOne) {
  RunConfig c = balanced();
  const std::int64_t unit = set_up(testing::settled(c)).plan.units[1].layout.gathered_numel() * 4;
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::bytes, 0, unit};
  const auto budget = set_up(testing::settled(c));
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 1, 0};
  EXPECT_EQ(budget.schedules.steady(), set_up(testing::settled(c)).schedules.steady());
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::bytes, 0, 2 * unit};
  EXPECT_NE(budget.schedules.steady(), set_up(testing::settled(c)).schedules.steady());
}

TEST(Knob, ASeparateReduceScatterCommunicatorFreesGathersFromReductions) {
  RunConfig c = balanced();
  c.fsdp.backward_prefetch.mode = Prefetch::Mode::none;  // gathers stand behind reductions
  c.fsdp.reduce_scatter_buffers = 3;
  const double one = measure(c).exposed_comm_ms;
  c.fsdp.separate_reduce_scatter_comm = true;
  const double two = measure(c).exposed_comm_ms;
  EXPECT_LT(two, one - kUnitMs);
}

TEST(Knob, MoreReduceScatterBuffersLetComputationRunAheadOfSlowReductions) {
  RunConfig c = balanced();
  c.fsdp.strategy = Strategy::shard_grad_op;  // only reductions in backward
  *c.emulate.link_gb_per_s /= 3;              // each as long as one and a half backwards
  c.fsdp.separate_reduce_scatter_comm = true;
  c.train.accumulate = 2;  // the second microbatch's forward needs no link: reductions left over hide behind it
  c.fsdp.reshard_after_backward = false;
  c.fsdp.wait_each_backward = false;
  const double one = measure(c).step_ms.median;
  const std::size_t buffers = index_of(MemoryCategory::communication_buffers);
  const std::int64_t one_input = set_up(testing::settled(c)).memory.peak_occupied[buffers];
  c.fsdp.reduce_scatter_buffers = 3;
  // With one buffer the last backwards wait for the reductions before them: 9 ms a block for six, where computation
  // takes 6 ms. With three all that is left over at the end is done during the next forward.
  EXPECT_GT(one - measure(c).step_ms.median, 3 * kUnitMs);
  EXPECT_GT(set_up(testing::settled(c)).memory.peak_occupied[buffers], 2 * one_input);
}

TEST(Knob, LearningTheExecutionOrderKeepsTheFirstStepFromPrefetching) {
  RunConfig c = balanced();
  c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
  const auto prefetches = [&](std::size_t step) {
    const std::vector<schedule::Op> ops = set_up(testing::settled(c)).schedules.of_step(step).ops;
    return std::count_if(ops.begin(), ops.end(), [](const schedule::Op& op) {
      return op.kind == schedule::OpKind::all_gather && op.phase == schedule::Phase::forward && op.prefetch;
    });
  };
  EXPECT_EQ(prefetches(0), kBlocks);
  c.fsdp.learn_execution_order = true;
  EXPECT_EQ(prefetches(0), 0);
  EXPECT_EQ(prefetches(1), kBlocks);
}

TEST(Knob, ExplicitForwardDepthCostsAUnitOfMemoryEach) {
  RunConfig c = balanced();
  std::vector<std::int64_t> peaks;
  for (int depth : {1, 2, 3}) {
    c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, depth};
    peaks.push_back(set_up(testing::settled(c)).memory.peak_occupied[index_of(MemoryCategory::unsharded_parameters)]);
  }
  const std::int64_t unit = set_up(testing::settled(c)).plan.units[1].layout.gathered_numel() * 4;
  EXPECT_EQ(peaks[1] - peaks[0], unit);
  EXPECT_EQ(peaks[2] - peaks[1], unit);
}

TEST(Knob, StrictLimitsChangeTheMeasuredPeakByOneUnitEach) {
  for (Layout layout : {Layout::flat, Layout::per_param}) {
    RunConfig c = balanced();
    c.fsdp.layout = layout;
    std::vector<std::int64_t> peaks;
    for (int limit : {1, 2, 3}) {
      c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, limit, 0};
      peaks.push_back(
          testing::run_tiny(c).memory.front().peak_occupied[index_of(MemoryCategory::unsharded_parameters)]);
    }
    const std::int64_t unit = set_up(testing::settled(c)).plan.units[1].layout.gathered_numel() * 4;
    EXPECT_EQ(peaks[1] - peaks[0], unit);
    EXPECT_EQ(peaks[2] - peaks[1], unit);
  }
}

std::int64_t bytes_on_wire(const RunConfig& c) {
  const Measurement result = testing::run_tiny(c);
  return result.wire_bytes[0][0] + result.wire_bytes[0][1] + result.wire_bytes[0][2];
}

TEST(Knob, ShardGradOpMovesTwoThirdsOfFullShard) {
  RunConfig c = balanced();
  c.fsdp.reshard_after_forward.mode = ReshardAfterForward::Mode::always;
  const std::int64_t full = bytes_on_wire(c);
  c.fsdp.strategy = Strategy::shard_grad_op;
  c.fsdp.reshard_after_forward.mode = ReshardAfterForward::Mode::automatic;
  EXPECT_EQ(3 * bytes_on_wire(c), 2 * full);
}

TEST(Knob, DtypesHalveTheirCollectives) {
  RunConfig c = balanced();
  const backend::WireBytes f32 = testing::run_tiny(c).wire_bytes.front();
  c.fsdp.param_dtype = DType::bf16;
  const backend::WireBytes low = testing::run_tiny(c).wire_bytes.front();
  EXPECT_EQ(2 * low[0], f32[0]);
  EXPECT_EQ(low[1], f32[1]);
  c.fsdp.reduce_dtype = DType::bf16;
  const backend::WireBytes both = testing::run_tiny(c).wire_bytes.front();
  EXPECT_EQ(2 * both[1], f32[1]);
}

TEST(Knob, HybridReducesAcrossReplicasAndGathersInside) {
  RunConfig c = balanced();
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh = {4, 2, 2};
  const backend::WireBytes bytes = testing::run_tiny(c).wire_bytes.front();
  const engine::Setup p = set_up(c);
  std::int64_t gathered = 0;
  for (const plan::Unit& u : p.plan.units) gathered += u.layout.gathered_numel();
  EXPECT_EQ(bytes[1], 3 * gathered * 4 / 2);  // (F-1)/F with F = 2, three steps
  EXPECT_EQ(bytes[2], 3 * gathered / 2 * 4);  // 2 (R-1)/R of the shard with R = 2
}

TEST(Knob, ReshardToAGroupGathersOverFewerRanks) {
  RunConfig c = balanced();
  const std::int64_t full = testing::run_tiny(c).wire_bytes.front()[0];
  c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
  EXPECT_LT(testing::run_tiny(c).wire_bytes.front()[0], full);
}

TEST(Knob, ActivationCheckpointingTradesMemoryForTime) {
  RunConfig c = balanced();
  const engine::Setup without = set_up(testing::settled(c));
  const double fast = measure(c).compute_ms;
  c.fsdp.activation_checkpointing = true;
  const engine::Setup with = set_up(testing::settled(c));
  const std::size_t activations = index_of(MemoryCategory::activations);
  EXPECT_LT(2 * with.memory.peak_occupied[activations], without.memory.peak_occupied[activations]);
  EXPECT_GT(measure(c).compute_ms, fast + 0.8 * kBlocks * kUnitMs);
}

TEST(Knob, ShardThresholdReplicatesSmallParameters) {
  RunConfig c = balanced();
  EXPECT_EQ(testing::run_tiny(c).wire_bytes.front()[2], 0);
  c.fsdp.shard_threshold = c.model.width + 1;  // the norms
  const engine::Setup p = set_up(testing::settled(c));
  EXPECT_EQ(p.plan.units[1].layout.replicated.size(), 2U);
  EXPECT_GT(testing::run_tiny(c).wire_bytes.front()[2], 0);
}

TEST(Knob, WrappingDecidesTheUnits) {
  RunConfig c = balanced();
  const auto units = [&](Wrap wrap) {
    c.fsdp.wrap = wrap;
    return set_up(testing::settled(c)).plan.units.size();
  };
  EXPECT_EQ(units({Wrap::Mode::block, 1, 0}), 7U);
  EXPECT_EQ(units({Wrap::Mode::blocks, 4, 0}), 3U);
  EXPECT_EQ(units({Wrap::Mode::model, 1, 0}), 1U);
  const std::int64_t block = 4 * 256 * 256 + 3 * 256 * 512 + 2 * 256;
  EXPECT_EQ(units({Wrap::Mode::min_size, 1, block}), 7U);
  EXPECT_EQ(units({Wrap::Mode::min_size, 1, block + 1}), 4U);
}

TEST(Knob, WithoutADigestNobodyGetsTheFinalParameters) {
  RunConfig c = testing::tiny_decoder();
  c.train.warmup = 0;
  c.train.steps = 1;
  const auto run = [&] {
    const testing::HashedBatches batches(static_cast<std::int32_t>(c.model.vocab));
    return engine::run(*backend::cpu::make_cpu_backend(), engine::set_up(testing::settled(c)), batches, {});
  };
  EXPECT_TRUE(run().parameters_digest.has_value());
  c.train.learning_rate = 1e38;  // the losses are finite, the parameters are not: who gets them sees that
  const engine::Measurement with = run();
  EXPECT_GT(with.parameters_not_finite, 0);
  c.train.params_digest = false;
  const engine::Measurement without = run();
  EXPECT_EQ(without.parameters_not_finite, 0);
  EXPECT_EQ(without.losses, with.losses);
  c.train.learning_rate = 1e-3;
  EXPECT_FALSE(run().parameters_digest.has_value());
}

TEST(Knob, GradientScalingRoundsDifferentlyOnThreeRanks) {
  // In fp32 the factors differ by powers of two and give the same bits. In bf16 the mean is rounded after dividing by
  // three, FSDP1's sum before.
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = 3;
  c.fsdp.reduce_dtype = DType::bf16;
  const auto average = testing::run_tiny(c).parameters_digest;
  c.fsdp.gradient_scaling = GradientScaling::pre_post_divide;
  EXPECT_NE(testing::run_tiny(c).parameters_digest, average);
}

/// Times of the steady step's ops of this kind on one rank.
std::vector<trace::Record> records_of(const RunConfig& c, schedule::OpKind kind, std::size_t rank) {
  const engine::Setup p = set_up(testing::settled(c));
  const Measurement result = testing::simulate_tiny(c);
  std::vector<trace::Record> found;
  for (const trace::Record& record : result.traces[rank].records) {
    const schedule::Op& op = p.schedules.of_step(record.step).ops[static_cast<std::size_t>(record.op)];
    if (op.kind == kind) found.push_back(record);
  }
  return found;
}

std::vector<std::int64_t> lengths(const std::vector<trace::Record>& records) {
  std::vector<std::int64_t> all;
  for (const trace::Record& record : records) all.push_back(record.end_ns - record.begin_ns);
  return all;
}

TEST(Knob, ASlowRankTakesItsFactorAndNoOtherDoes) {
  RunConfig c = balanced();
  const auto before = lengths(records_of(c, schedule::OpKind::backward, 2));
  c.inject.slow_rank = 2;
  c.inject.slow_rank_factor = 2.5;
  for (const std::size_t rank : {1U, 2U}) {
    const auto after = lengths(records_of(c, schedule::OpKind::backward, rank));
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(after[i]), (rank == 2 ? 2.5 : 1) * static_cast<double>(before[i]), 1) << rank;
    }
  }
}

TEST(Knob, ASlowLinkTakesItsFactorAndLatencyItsHops) {
  const RunConfig c = balanced();
  // Gathers of a run without prefetching meet at once.
  RunConfig alone = c;
  alone.fsdp.forward_prefetch.mode = Prefetch::Mode::none;
  const auto transfers = [](const RunConfig& asked) {
    std::vector<double> all;
    for (const trace::Record& r : records_of(asked, schedule::OpKind::all_gather, 0)) {
      all.push_back(static_cast<double>(r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns)));
    }
    return all;
  };
  const std::vector<double> before = transfers(alone);
  RunConfig slow_link = alone;
  slow_link.inject.slow_link_rank = 1;
  slow_link.inject.slow_link_factor = 3;
  const std::vector<double> slow = transfers(slow_link);
  RunConfig latency = alone;
  latency.emulate.link_latency_us = 2000;
  const std::vector<double> late = transfers(latency);
  ASSERT_EQ(slow.size(), before.size());
  ASSERT_FALSE(before.empty());
  EXPECT_NEAR(slow[1], 3 * before[1], 2);
  EXPECT_NEAR(late[1], before[1] + 3 * 2e6, 2) << "a ring of four has three hops";
}

TEST(Knob, ADelayComesBeforeEachOpOfItsLane) {
  RunConfig c = balanced();
  const double base = measure(c).step_ms.median;
  c.inject.delay_lane = "compute";
  c.inject.delay_us = 3000;
  EXPECT_GT(measure(c).step_ms.median, base + 2 * kBlocks * kUnitMs * 0.8);
}

/// Seeded: a part of the jitter before each op, another before each.
TEST(Knob, JitterIsDrawnFromItsSeed) {
  RunConfig c = balanced();
  const auto begins = [&] {
    std::vector<std::int64_t> gaps;
    const std::vector<trace::Record> all = records_of(c, schedule::OpKind::backward, 0);
    for (std::size_t i = 1; i < all.size(); ++i) gaps.push_back(all[i].begin_ns - all[i - 1].end_ns);
    return gaps;
  };
  const std::vector<std::int64_t> none = begins();
  c.inject.jitter_us = 500;
  const std::vector<std::int64_t> some = begins();
  EXPECT_NE(some, none);
  EXPECT_EQ(begins(), some);
  EXPECT_GT(measure(c).step_ms.median, [&] {
    RunConfig quiet = c;
    quiet.inject.jitter_us = 0;
    return measure(quiet).step_ms.median;
  }());
  c.train.seed += 1;
  EXPECT_NE(begins(), some);
}

TEST(Knob, AHostSyncStopsTheHostFromRunningAhead) {
  RunConfig c = balanced();
  const double without = measure(c).exposed_comm_ms;
  c.inject.host_sync_after_layer = 2;
  const double with = measure(c).exposed_comm_ms;
  EXPECT_GT(with - without, 0.5 * kUnitMs);  // the next gather starts only now
}

}  // namespace
}  // namespace fsdpbench::engine
