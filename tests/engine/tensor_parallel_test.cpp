// Ranks that split layers: bytes, memory, data and times as the closed forms and the schedule say. That they compute
// what one rank computes is in same_computation_test.cpp.
#include <gtest/gtest.h>

#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "support/communication_formula.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

RunConfig split(Mesh mesh) {
  RunConfig c = testing::splittable_decoder();
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
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().mesh.sequence_parallel = true;
  }
  return all;
}

TEST(TensorParallel, BytesAndMemoryAreTheFormulas) {
  for (const RunConfig& config : cases()) {
    SCOPED_TRACE(::testing::Message() << config.mesh.shard << " x " << config.mesh.replicate << " x "
                                      << config.mesh.tensor << (config.mesh.sequence_parallel ? ", tokens" : ""));
    const engine::Setup setup = set_up(config);
    const plan::CommunicationVolume formula =
        plan::communication_volume(setup.plan, config, schedule::regathers(setup.policy, setup.plan));
    const Measurement measured = testing::run_tiny(config);
    const auto steps = static_cast<double>(config.train.steps);
    for (std::size_t rank = 0; rank < measured.wire_bytes.size(); ++rank) {
      const auto bytes = [&](backend::Collective kind) {
        return static_cast<double>(measured.wire_bytes[rank][static_cast<std::size_t>(kind)]) / steps;
      };
      EXPECT_DOUBLE_EQ(bytes(backend::Collective::all_gather), formula.all_gather) << rank;
      EXPECT_NEAR(bytes(backend::Collective::reduce_scatter), formula.reduce_scatter, 1) << rank;
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
  for (const bool tokens : {false, true}) {
    const RunConfig whole = split({1}), parts = split({4, 1, 1, 4, tokens});
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
}

/// A block keeps its residual stream and its norms' statistics, and hands its output on: of each the other ranks' rows
/// go. A rank that gathers needs the whole stream only while a layer runs.
TEST(TensorParallel, TokensThatAreSplitTakeTheirBytesWithThem) {
  for (const std::int64_t tensor : {2, 4}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      RunConfig c = split({tensor, 1, 1, tensor});
      c.model.width = 64;  // so that memory is given in these sizes
      c.train.seq_len = 512;
      c.fsdp.param_dtype = dtype;
      const engine::Setup rows = set_up(c);
      c.mesh.sequence_parallel = true;
      const engine::Setup tokens = set_up(c);
      const std::int64_t all = c.train.batch_per_rank * c.train.seq_len, others = all - all / tensor;
      const std::int64_t stream = others * c.model.width * size_of(dtype), statistics = others * size_of(DType::f32);
      const std::int64_t modules = std::ssize(rows.sizes);
      std::int64_t kept = 0;
      for (std::int64_t m = 0; m < modules; ++m) {
        const auto& a = rows.sizes[static_cast<std::size_t>(m)];
        const auto& b = tokens.sizes[static_cast<std::size_t>(m)];
        kept += a.saved_bytes + a.output_bytes - b.saved_bytes - b.output_bytes;
      }
      EXPECT_EQ(kept, c.model.layers * (2 * stream + 2 * statistics) + stream + statistics);
      // The peak is in the last block's backward. The gradient of the stream is there instead of the last output, and
      // what is exchanged is as large as ever. The copy of the whole stream that a norm makes beside it is not, and the
      // head's statistics have gone before.
      const auto peak = [](const engine::Setup& s) {
        return s.memory.peak_occupied[index_of(MemoryCategory::activations)];
      };
      const std::int64_t whole = all * c.model.width * size_of(dtype);
      EXPECT_EQ(peak(rows) - peak(tokens), kept - statistics + whole) << tensor;
    }
  }
}

/// A reduce-scatter adds up the same numbers in the same order as the sum that it stands for.
TEST(TensorParallel, ForwardHasTheSameBitsWhereTokensAreSplit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunConfig c = split({8, 2, 1, 4});
    c.fsdp.param_dtype = dtype;
    c.train.warmup = 0;
    c.train.steps = 1;
    const Measurement rows = testing::run_tiny(c);
    c.mesh.sequence_parallel = true;
    EXPECT_EQ(testing::run_tiny(c).losses, rows.losses);
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

/// With plain gradient descent a step is as long as the norm says. Norms' weights are whole on each rank.
TEST(TensorParallel, ClippingCountsWhatEachRankHasWholeOnce) {
  const auto losses = [](const Mesh& mesh) {
    RunConfig c = split(mesh);
    c.train.warmup = 0;
    c.train.steps = 4;
    c.train.batch_per_rank = 4 / mesh.data_ranks();
    c.train.optimizer = Optimizer::sgd;
    c.train.learning_rate = 20;  // far: counted once a rank, they would move the last loss by 7e-4
    c.train.clip_norm = 0.5;
    return testing::run_tiny(c).losses;
  };
  const auto one = losses({1});
  for (const Mesh& mesh : {Mesh{2, 1, 1, 2}, Mesh{4, 2, 1, 2}, Mesh{4, 1, 1, 4, true}}) {
    const auto parts = losses(mesh);
    ASSERT_EQ(parts.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(parts[i], one[i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace fsdpbench::engine
