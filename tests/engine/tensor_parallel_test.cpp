// Ranks that split layers: bytes, memory, data and times as the closed forms and the schedule say. That they compute
// what one rank computes is in same_computation_test.cpp.
#include <gtest/gtest.h>

#include "plan/communication.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

RunConfig split(Mesh mesh) {
  RunConfig c = testing::tiny_decoder();
  c.model.kv_heads = 4;
  c.model.ffn_width = 36;
  c.model.vocab = 52;
  c.mesh = mesh;
  c.train.steps = 2;
  return testing::settled(c);
}

std::vector<RunConfig> cases() {
  std::vector<RunConfig> all{split({4, 2, 1, 2}), split({8, 2, 1, 4}), split({4, 1, 1, 4}), split({8, 2, 2, 2})};
  all.back().fsdp.strategy = Strategy::hybrid_shard;
  RunConfig more = split({8, 4, 1, 2});
  more.fsdp.activation_checkpointing = true;
  more.fsdp.checkpoint_every = 2;
  more.fsdp.param_dtype = DType::bf16;
  more.train.accumulate = 2;
  more.train.clip_norm = 0.05;
  all.push_back(more);
  return all;
}

TEST(TensorParallel, BytesAndMemoryAreTheFormulas) {
  for (const RunConfig& config : cases()) {
    SCOPED_TRACE(::testing::Message() << config.mesh.shard << " x " << config.mesh.replicate << " x "
                                      << config.mesh.tensor);
    const engine::Setup setup = set_up(config);
    const plan::CommunicationVolume formula =
        plan::communication_volume(setup.plan, config, schedule::units_that_reshard(setup.policy, setup.plan));
    const Measurement measured = testing::run_tiny(config);
    const auto steps = static_cast<double>(config.train.steps);
    for (std::size_t rank = 0; rank < measured.wire_bytes.size(); ++rank) {
      const auto bytes = [&](backend::Collective kind) {
        return static_cast<double>(measured.wire_bytes[rank][static_cast<std::size_t>(kind)]) / steps;
      };
      EXPECT_DOUBLE_EQ(bytes(backend::Collective::all_gather), formula.all_gather) << rank;
      EXPECT_DOUBLE_EQ(bytes(backend::Collective::reduce_scatter), formula.reduce_scatter) << rank;
      EXPECT_NEAR(bytes(backend::Collective::all_reduce), formula.all_reduce, 1) << rank;
      EXPECT_EQ(measured.memory[rank].peak_occupied, setup.memory.peak_occupied) << rank;
    }
  }
}

TEST(TensorParallel, AComputedClockCountsTheSameBytes) {
  for (RunConfig config : cases()) {
    const Measurement measured = testing::run_tiny(config);
    config.emulate.compute_tflops = 0.001;
    config.emulate.link_gb_per_s = 1;
    config.device.backend = BackendKind::virtual_;
    const Measurement simulated = testing::simulate_tiny(config);
    EXPECT_EQ(simulated.wire_bytes, measured.wire_bytes);
    EXPECT_EQ(simulated.steps_done, config.train.warmup + config.train.steps);
  }
}

/// A part computes its share and no more, so that emulated steps without communication take as long as their share.
TEST(TensorParallel, ArithmeticIsSplitEvenly) {
  const RunConfig whole = split({1}), parts = split({4, 1, 1, 4});
  const engine::Setup one = set_up(whole), four = set_up(parts);
  for (std::size_t m = 0; m < one.sizes.size(); ++m) {
    EXPECT_DOUBLE_EQ(four.sizes[m].forward_flops, one.sizes[m].forward_flops / 4) << m;
    EXPECT_DOUBLE_EQ(four.sizes[m].backward_flops, one.sizes[m].backward_flops / 4) << m;
    const auto sum = [](const std::vector<plan::ModulePart>& all) {
      double flops = 0;
      for (const plan::ModulePart& part : all) flops += part.flops;
      return flops;
    };
    EXPECT_DOUBLE_EQ(sum(four.sizes[m].forward_parts), four.sizes[m].forward_flops) << m;
    EXPECT_DOUBLE_EQ(sum(four.sizes[m].recompute_parts), four.sizes[m].recompute_flops) << m;
    if (m > 0) {
      EXPECT_DOUBLE_EQ(sum(four.sizes[m].backward_parts), four.sizes[m].backward_flops) << m;
    }
  }
}

TEST(TensorParallel, EachRankStartsWithItsPartOfTheSameModel) {
  // No step is taken: what comes home is what one rank would have filled in, by any mesh.
  RunConfig one = split({1});
  one.train.learning_rate = 1e-30;
  one.train.weight_decay = 0;
  const std::string digest = testing::run_tiny(one).parameters_digest.value();
  for (RunConfig c : cases()) {
    if (c.fsdp.param_dtype != DType::f32) continue;
    c.train.learning_rate = 1e-30;
    c.train.weight_decay = 0;
    EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), digest) << c.mesh.tensor;
  }
}

}  // namespace
}  // namespace fsdpbench::engine
