// model.fused_projections in whole trainings: those of separate ones within rounding, on every mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

constexpr std::int64_t kFusedAll = 5;

RunConfig fused_training(bool fused, const Mesh& mesh = {4}) {
  RunConfig c = testing::splittable_decoder();
  c.model.fused_projections = fused;
  c.mesh = mesh;
  c.train.warmup = 0;
  c.train.steps = kFusedAll;
  c.train.batch_per_rank = 8 / mesh.data_ranks();
  if (mesh.replicate > 1) c.fsdp.strategy = Strategy::hybrid_shard;
  return c;
}

const std::vector<Mesh> kFusedMeshes{{1}, {4}, {4, 2, 2}, {4, 2, 1, 2}, {4, 1, 1, 4}, {4, 2, 1, 2, true}};

void expect_near(const std::vector<double>& losses, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], tolerance * expected[i]) << "step " << i;
  }
}

TEST(FusedProjectionsRun, IsTheTrainingOfSeparateOnes) {
  for (const Mesh& mesh : kFusedMeshes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(::testing::Message() << mesh.ranks << " ranks, " << mesh.shard << " x " << mesh.replicate << " x "
                                        << mesh.tensor << ", " << to_string(dtype));
      RunConfig apart = fused_training(false, mesh), joined = fused_training(true, mesh);
      apart.fsdp.param_dtype = joined.fsdp.param_dtype = dtype;
      const Measurement separate = testing::run_tiny(apart), fused = testing::run_tiny(joined);
      expect_near(fused.losses, separate.losses, dtype == DType::f32 ? 1e-5 : 1e-2);
      EXPECT_EQ(fused.memory.front().peak_occupied, set_up(testing::settled(joined)).memory.peak_occupied);
    }
  }
}

TEST(FusedProjectionsRun, HasTheSameBitsWhateverThePolicy) {
  const auto digest = [](RunConfig c) { return testing::run_tiny(c).parameters_digest.value(); };
  for (const std::int64_t tensor : {1, 2}) {
    RunConfig base = fused_training(true, {4, 0, 0, tensor});
    if (tensor == 1) base.model.ffn_width = 37;  // rows that no number of shards divides
    base.train.clip_norm = 0.05;
    const std::string expected = digest(base);
    const std::vector<std::function<void(RunConfig&)>> policies{
        [](RunConfig& c) { c.fsdp.layout = Layout::flat; },
        [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; },
        [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op, c.fsdp.layout = Layout::flat; },
        [](RunConfig& c) { c.fsdp.activation_checkpointing = true; },
        [](RunConfig& c) { c.fsdp.shard_threshold = 600; },
        [](RunConfig& c) {
          c.fsdp.wrap = {Wrap::Mode::blocks, 2, 0};
        },
        [](RunConfig& c) { c.fsdp.cpu_offload = CpuOffload::all; }};
    for (std::size_t i = 0; i < policies.size(); ++i) {
      RunConfig c = base;
      policies[i](c);
      EXPECT_EQ(digest(c), expected) << "policy " << i << ", " << tensor << " ranks a layer";
    }
  }
}

}  // namespace
}  // namespace fsdpbench::engine
