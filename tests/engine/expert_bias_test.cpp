// model.router_bias_rate in trainings: what PyTorch computes with torchtitan's rule, one computation whatever the
// policy, and a checkpoint that goes on with the biases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/checkpoint_saver.h"
#include "plan/communication.h"
#include "schedule/check_schedules.h"
#include "schedule/fetch_trace.h"
#include "support/golden.h"
#include "support/golden_tokens.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
namespace fs = std::filesystem;

RunConfig biased(std::int64_t ranks, std::int64_t expert, const std::function<void(RunConfig&)>& change = {}) {
  RunConfig c = testing::tiny_decoder();
  c.model.experts = 6;
  c.model.active_experts = 2;
  c.model.router_bias_rate = 0.05;
  c.mesh.ranks = ranks;
  c.mesh.expert = expert;
  c.train.steps = 4;
  c.train.warmup = 0;
  c.train.clip_norm = 0.05;
  if (change) change(c);
  return c;
}

/// The biases of all blocks, one after the other, as a checkpoint has them.
std::vector<float> saved_biases(const Checkpoint& checkpoint) {
  std::vector<float> all;
  const std::vector<plan::ParameterShape>& parameters = checkpoint.manifest().parameters;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!has_state(parameters[p], State::expert_bias)) continue;
    std::vector<float> some(static_cast<std::size_t>(state_numel(parameters[p], State::expert_bias)));
    checkpoint.read(State::expert_bias, static_cast<int>(p), 0, some);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<float> biases_after(std::int64_t steps, const RunConfig& c) {
  const TemporaryFolder folder;
  return saved_biases(Checkpoint(testing::checkpoint_after(steps, c, folder)));
}

/// Each rank has its part of the batch, so that the biases follow the rows of all ranks or are others.
TEST(ExpertBias, TrainsAsPyTorchDoes) {
  const testing::GoldenDecoder golden(std::string("decoder_expert_bias"));
  struct Case {
    std::int64_t ranks, expert, shard;
  };
  for (const auto& [ranks, expert, shard] : {Case{1, 1, 1}, {2, 1, 2}, {4, 1, 2}, {2, 2, 2}, {4, 2, 4}, {4, 2, 2}}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << expert << " split experts, shards of " << shard);
    const TemporaryFolder folder;
    RunConfig c;
    c.model = golden.model();
    c.train = golden.train();
    c.train.batch_per_rank /= ranks;
    c.mesh.ranks = ranks;
    c.mesh.expert = expert;
    c.mesh.shard = shard;
    if (shard < ranks) c.fsdp.strategy = Strategy::hybrid_shard;
    c.checkpoint.folder = folder.path().string();
    c = testing::settled(c);
    const engine::Setup p = set_up(c);
    const Measurement result =
        run(*backend::cpu::make_cpu_backend(), p, testing::GoldenTokens(golden), testing::golden_hooks(golden, p.plan));
    testing::expect_golden(result, golden, p.plan, 3e-6, 3e-5);
    EXPECT_THAT(saved_biases(Checkpoint(newest_checkpoint(folder.path()).value())),
                ::testing::Pointwise(::testing::FloatNear(1e-7F), golden.file().floats("biases")));
  }
}

TEST(ExpertBias, HasTheSameBitsWhateverThePolicy) {
  for (const std::int64_t expert : {1, 2}) {
    const RunConfig base = biased(4, expert, [](RunConfig& c) { c.train.accumulate = 2; });
    const std::string expected = testing::run_tiny(base).parameters_digest.value();
    const std::vector<float> biases = biases_after(4, base);
    std::vector<std::function<void(RunConfig&)>> policies{
        [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op; },
        [](RunConfig& c) { c.fsdp.activation_checkpointing = true; },
        [](RunConfig& c) { c.fsdp.activation_checkpointing = true, c.fsdp.checkpoint_every = 2; },
        [](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::none; },
        [](RunConfig& c) { c.fsdp.backward_prefetch.mode = Prefetch::Mode::post; },
        [](RunConfig& c) { c.fsdp.separate_reduce_scatter_comm = true; }};
    if (expert == 1) {
      policies.emplace_back([](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; });
      policies.emplace_back([](RunConfig& c) { c.fsdp.layout = Layout::flat; });
      policies.emplace_back([](RunConfig& c) { c.fsdp.cpu_offload = CpuOffload::all; });
    }
    for (std::size_t i = 0; i < policies.size(); ++i) {
      RunConfig c = base;
      policies[i](c);
      EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << "policy " << i;
      EXPECT_EQ(biases_after(4, c), biases) << "policy " << i;
      EXPECT_THAT(schedule::check_schedules(set_up(testing::settled(c)).schedules), ::testing::IsEmpty());
    }
  }
}

/// In one step all samples are routed alike, whoever has them and in however many microbatches.
TEST(ExpertBias, FollowsTheRowsOfAllRanksAndMicrobatches) {
  const auto after_one = [](std::int64_t ranks, std::int64_t accumulate, std::int64_t batch) {
    return biases_after(1, biased(ranks, 1, [&](RunConfig& c) {
                          c.train.accumulate = accumulate;
                          c.train.batch_per_rank = batch;
                        }));
  };
  const std::vector<float> expected = after_one(1, 1, 8);
  EXPECT_EQ(after_one(4, 1, 2), expected);
  EXPECT_EQ(after_one(1, 4, 2), expected);
  EXPECT_EQ(after_one(2, 2, 2), expected);
  EXPECT_NE(after_one(1, 1, 2), expected) << "the first quarter alone says otherwise";
  for (std::size_t block = 0; block < 3; ++block) {
    const auto* of_block = expected.data() + block * 6;
    EXPECT_NEAR(std::accumulate(of_block, of_block + 6, 0.0F), 0, 1e-6) << "they keep their mean";
  }
}

TEST(ExpertBias, EvensOutTheRows) {
  const auto busiest = [](double rate) {
    const Measurement result = testing::run_tiny(biased(2, 1, [&](RunConfig& c) {
      c.model.router_bias_rate = rate;
      c.train.warmup = 30;
      c.train.steps = 10;
      c.train.learning_rate = 1e-5;
    }));
    std::int64_t most = 0;
    for (const std::vector<std::int64_t>& block : result.expert_rows) most = std::max(most, std::ranges::max(block));
    return most;
  };
  EXPECT_LT(busiest(0.005), busiest(0));
}

TEST(ExpertBias, GoesOnFromACheckpointToTheSameBits) {
  for (const std::int64_t expert : {1, 2}) {
    const RunConfig c = biased(4, expert, [&](RunConfig& config) {
      config.mesh.shard = 2;
      config.fsdp.strategy = Strategy::hybrid_shard;
      config.train.steps = 6;
      config.checkpoint.every = 3;
    });
    const TemporaryFolder folder;
    RunConfig saving = c;
    saving.checkpoint.folder = folder.path().string();
    const Measurement whole = testing::run_tiny(saving);
    const Checkpoint half(step_folder(folder.path(), 3)), end(step_folder(folder.path(), 6));
    EXPECT_TRUE(half.manifest().expert_bias);
    EXPECT_EQ(saved_biases(half), biases_after(3, c));
    EXPECT_NE(saved_biases(half), saved_biases(end));
    EXPECT_EQ(testing::resumed(c, half.folder()).parameters_digest, whole.parameters_digest);
    const TemporaryFolder rest;
    RunConfig second = c;
    second.checkpoint.folder = rest.path().string();
    (void)testing::resumed(second, half.folder());
    EXPECT_EQ(saved_biases(Checkpoint(step_folder(rest.path(), 6))), saved_biases(end));
    EXPECT_LE(fs::file_size(half.folder() / shard_file_name(0, 4)),
              static_cast<std::uintmax_t>(CheckpointSaver::file_bytes(c, set_up(testing::settled(c)).plan)));
  }
}

/// A checkpoint of a training without biases has none, as no older version has: they begin with zero.
TEST(ExpertBias, BeginsWhereACheckpointHasNone) {
  const TemporaryFolder folder;
  const RunConfig c = biased(2, 1);
  RunConfig without = c;
  without.model.router_bias_rate = 0;
  const fs::path step = testing::checkpoint_after(2, without, folder);
  EXPECT_FALSE(read_manifest(step).expert_bias);
  const Measurement rest = testing::resumed(c, step);
  EXPECT_EQ(rest.losses.front(), testing::resumed(without, step).losses.front());
  EXPECT_NE(rest.losses.back(), testing::resumed(without, step).losses.back());
}

/// 3 blocks of 6 experts, four bytes each, over two shards and two replicas.
TEST(ExpertBias, SendsTheBytesOfTheFormulaAndNeedsTheMemoryThatIsSaid) {
  RunConfig c = testing::settled(biased(4, 1, [](RunConfig& config) {
    config.mesh.shard = 2;
    config.fsdp.strategy = Strategy::hybrid_shard;
  }));
  const auto sent = [](const RunConfig& config) {
    const engine::Setup p = set_up(config);
    const double formula = plan::communication_volume(p.plan, config, schedule::regathers(p.policy, p.plan)).all_reduce;
    const Measurement result = testing::run_tiny(config);
    for (const backend::WireBytes& bytes : result.wire_bytes) {
      EXPECT_EQ(static_cast<double>(bytes[static_cast<std::size_t>(backend::Collective::all_reduce)]),
                static_cast<double>(config.train.steps) * formula);
    }
    EXPECT_EQ(result.memory.front().peak_occupied, p.memory.peak_occupied);
    return formula;
  };
  const double with = sent(c);
  c.model.router_bias_rate = 0;
  EXPECT_EQ(with - sent(c), 2 * (3 * 6 * 4 * 2 / 2));
}

TEST(ExpertBias, TheSumTakesTimeOfASimulatedStep) {
  RunConfig c = biased(4, 2, [](RunConfig& config) { config.emulate = {0.001, 20.0, 1.0}; });
  const Measurement with = testing::simulate_tiny(c);
  c.model.router_bias_rate = 0;
  const Measurement without = testing::simulate_tiny(c);
  const auto step = [](const Measurement& m) { return m.traces.front().steps.back(); };
  const auto ns = [&](const Measurement& m) { return step(m).end_ns - step(m).begin_ns; };
  // A ring of four ranks: six hops, and one and a half times 18 numbers of four bytes at 1 MB/s.
  EXPECT_EQ(ns(with) - ns(without), 6 * 20'000 + 108 * 1'000);
}

TEST(ExpertBias, IsMovedBeforeGradientsAreClippedAndCountedInForwardOnly) {
  const RunConfig c = testing::settled(biased(4, 2, [](RunConfig& config) {
    config.mesh.shard = 2;
    config.fsdp.strategy = Strategy::hybrid_shard;
    config.fsdp.activation_checkpointing = true;
  }));
  using schedule::OpKind;
  const engine::Setup p = set_up(c);
  std::vector<OpKind> update;
  for (const schedule::Op& op : p.schedules.steady().ops) {
    if (op.phase == schedule::Phase::optimizer && op.has_work()) update.push_back(op.kind);
    const auto* pass = std::get_if<schedule::Forward>(&op.work);
    if (pass == nullptr || pass->expert_bias == schedule::kNoBuffer) continue;
    EXPECT_EQ(pass->expert_load != schedule::kNoBuffer, op.kind == OpKind::forward);
  }
  update.resize(4);
  EXPECT_THAT(update, ::testing::ElementsAre(OpKind::reduce_load, OpKind::reduce_load, OpKind::balance_experts,
                                             OpKind::gradient_norm));
}

}  // namespace
}  // namespace fsdpbench::engine
