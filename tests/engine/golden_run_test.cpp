// Whole runs against what PyTorch and JAX computed (tests/golden): any number of ranks, any strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/golden.h"
#include "support/golden_tokens.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

TEST(GoldenRun, DecoderTrainsAsPyTorchDoes) {
  for (const char* name : {"decoder_tied", "decoder_untied"}) {
    const testing::GoldenDecoder golden{std::string(name)};
    for (const auto& [ranks, strategy] : {std::pair{1, Strategy::no_shard},
                                          {2, Strategy::full_shard},
                                          {4, Strategy::shard_grad_op},
                                          {8, Strategy::full_shard}}) {
      RunConfig c;
      c.model = golden.model();
      c.train = golden.train();
      c.train.batch_per_rank /= ranks;
      c.mesh.ranks = ranks;
      c.fsdp.strategy = strategy;
      c = testing::settled(c);
      const engine::Setup p = set_up(c);
      const Measurement result = run(*backend::cpu::make_cpu_backend(), p, testing::GoldenTokens(golden),
                                     testing::golden_hooks(golden, p.plan));
      testing::expect_golden(result, golden, p.plan, 3e-6, 1e-6);
    }
  }
}

class GoldenFeatures : public BatchSource {
 public:
  explicit GoldenFeatures(const testing::GoldenStep& step) : step_(step) {}
  void tokens(std::int64_t, std::span<std::int32_t>) const override {}
  void features(std::int64_t sample, std::span<float> inputs, std::span<float> targets) const override {
    std::copy_n(step_.x.begin() + sample * step_.in, step_.in, inputs.begin());
    std::copy_n(step_.y.begin() + sample * step_.out, step_.out, targets.begin());
  }

 private:
  const testing::GoldenStep& step_;
};

TEST(GoldenRun, OneLinearLayerStepsAsFlaxDoesForAnyNumberOfShards) {
  for (const testing::GoldenStep& golden : testing::golden_steps()) {
    for (int num_shards : {1, 2, 4, 8}) {
      for (Layout layout : {Layout::flat, Layout::per_param}) {
        RunConfig c;
        c.model.kind = ModelKind::mlp;
        c.model.layers = 1;
        c.model.in_features = golden.in;
        c.model.out_features = golden.out;
        c.train.optimizer = Optimizer::sgd;
        c.train.learning_rate = golden.learning_rate;
        c.train.weight_decay = 0;
        c.train.steps = 1;
        c.train.warmup = 0;
        c.train.batch_per_rank = golden.batch / num_shards;
        c.mesh.ranks = num_shards;
        c.fsdp.layout = layout;
        const engine::Setup p = set_up(testing::settled(c));
        RunHooks hooks;
        hooks.keep_parameters = true;
        hooks.fill = [&](int parameter, std::int64_t begin, std::span<float> out) {
          const std::vector<float>& all = parameter == 0 ? golden.weight : golden.bias;
          std::copy_n(all.begin() + begin, out.size(), out.begin());
        };
        const Measurement result = run(*backend::cpu::make_cpu_backend(), p, GoldenFeatures(golden), hooks);
        EXPECT_NEAR(result.losses.front(), static_cast<double>(golden.loss), 1e-6 * static_cast<double>(golden.loss));
        for (std::size_t i = 0; i < golden.new_weight.size(); ++i) {
          ASSERT_NEAR(result.parameters[0][i], golden.new_weight[i], 1e-6F) << golden.name << ", " << num_shards;
        }
        for (std::size_t i = 0; i < golden.new_bias.size(); ++i) {
          ASSERT_NEAR(result.parameters[1][i], golden.new_bias[i], 1e-6F) << golden.name << ", " << num_shards;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdpbench::engine
