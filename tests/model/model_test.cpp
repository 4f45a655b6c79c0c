// Promises of a model beside its numbers: sizes, recomputation, dtypes, loss scale.

#include "model/model.h"

#include <gtest/gtest.h>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/cpu/lane_worker.h"
#include "base/bytes.h"
#include "model/support.h"

namespace fsdpbench::testing {
namespace {

struct OneStep {
  OneStep(const config::Model& config, model::BatchShape batch, float loss_scale = 1.0F)
      : rank(config, batch, *kernels) {
    randomize(rank, config, batch);
    rank.forward(loss_scale);
    rank.backward();
  }
  std::unique_ptr<backend::Kernels> kernels = backend::cpu::make_cpu_kernels();
  SingleRank rank;
};

std::vector<config::Model> models() {
  const config::Model decoder = small_decoder(2, false);
  return {small_decoder(2, true), decoder, small_mlp(1), small_mlp(3)};
}

model::BatchShape batch_of(const config::Model& config, DType dtype) {
  return {3, config.kind == config::ModelKind::mlp ? 1 : 10, dtype};
}

TEST(Model, WritesNothingOutsideTheSizesItStates) {
  for (const config::Model& config : models()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      EXPECT_TRUE(OneStep(config, batch_of(config, dtype)).rank.intact());
      EXPECT_TRUE(OneStep(config, {1, 1, dtype}).rank.intact());
    }
  }
}

TEST(Model, GivesFiniteNumbersFromPoisonedMemory) {
  for (const config::Model& config : models()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const OneStep run(config, batch_of(config, dtype));
      EXPECT_TRUE(std::isfinite(run.rank.loss()));
      for (std::size_t i = 0; i < run.rank.parameter_count(); ++i) {
        EXPECT_TRUE(std::isfinite(norm(run.rank.gradient(i)))) << run.rank.shapes().parameters[i].name;
      }
    }
  }
}

TEST(Model, RecomputationSavesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OneStep run(small_decoder(3, false), {2, 10, dtype});
    for (std::size_t block = 1; block <= 3; ++block) {
      const std::vector<std::byte> saved = run.rank.saved(block);
      run.rank.recompute(block);
      EXPECT_EQ(run.rank.saved(block), saved);
    }
    EXPECT_TRUE(run.rank.intact());
  }
}

TEST(Model, TheSameStepGivesTheSameBits) {
  for (const config::Model& config : models()) {
    const OneStep first(config, batch_of(config, DType::f32));
    const OneStep second(config, batch_of(config, DType::f32));
    EXPECT_EQ(first.rank.loss(), second.rank.loss());
    for (std::size_t i = 0; i < first.rank.parameter_count(); ++i) {
      EXPECT_EQ(first.rank.gradient(i), second.rank.gradient(i));
    }
  }
}

TEST(Model, LossScaleMultipliesEveryGradientAndNotTheLoss) {
  for (const config::Model& config : models()) {
    const OneStep plain(config, batch_of(config, DType::f32));
    const OneStep scaled(config, batch_of(config, DType::f32), 4.0F);
    EXPECT_EQ(scaled.rank.loss(), plain.rank.loss());
    for (std::size_t i = 0; i < plain.rank.parameter_count(); ++i) {
      std::vector<float> expected = plain.rank.gradient(i);
      for (float& g : expected) g *= 4.0F;  // a power of two: exact all the way
      EXPECT_EQ(scaled.rank.gradient(i), expected) << plain.rank.shapes().parameters[i].name;
    }
  }
}

TEST(Model, Bf16IsNearFp32) {
  for (const config::Model& config : models()) {
    const OneStep exact(config, batch_of(config, DType::f32));
    const OneStep rounded(config, batch_of(config, DType::bf16));
    EXPECT_NEAR(rounded.rank.loss(), exact.rank.loss(), 2e-2 * exact.rank.loss());
    for (std::size_t i = 0; i < exact.rank.parameter_count(); ++i) {
      std::vector<float> difference = rounded.rank.gradient(i);
      const std::vector<float> expected = exact.rank.gradient(i);
      for (std::size_t j = 0; j < expected.size(); ++j) difference[j] -= expected[j];
      EXPECT_LT(norm(difference), 6e-2 * norm(expected)) << exact.rank.shapes().parameters[i].name;
    }
  }
}

TEST(ModelSizes, OfADecoderByHand) {
  const config::Model config = small_decoder(2, true);  // width 24 in 4 heads of 6, 2 for keys, inner width 20
  const model::BatchShape batch{3, 10, DType::bf16};
  const auto sizes = model::make_model(config, plan::model_shapes(config), batch)->sizes();
  ASSERT_EQ(sizes.size(), 4U);
  EXPECT_EQ(sizes[0].batch_input_bytes, 30 * 4);
  EXPECT_EQ(sizes[0].batch_target_bytes, 30 * 4);
  EXPECT_EQ(sizes[0].output_bytes, 30 * 24 * 2);
  EXPECT_EQ(sizes[0].saved_bytes, 0);
  EXPECT_EQ(sizes[1].output_bytes, 30 * 24 * 2);
  // q, attention's output, h: 24 wide; k, v: 12; gate, up: 20; two statistics a row, one log-sum-exp a row and head.
  const auto aligned = [](std::int64_t bytes) { return round_up(bytes, 64); };
  EXPECT_EQ(sizes[1].saved_bytes, 3 * aligned(30 * 24 * 2) + 2 * aligned(30 * 12 * 2) + 2 * aligned(30 * 20 * 2) +
                                      2 * aligned(30 * 4) + aligned(30 * 4 * 4));
  // 2 FLOPs a multiply-add; attention's two products over half of the [10, 10] scores.
  const double products = 2.0 * 30 * (24 * 24 * 2 + 24 * 12 * 2 + 24 * 20 * 3);
  const double attention = 2.0 * 3 * 4 * 10 * 10 * 6;
  EXPECT_DOUBLE_EQ(sizes[1].forward_flops, products + attention);
  EXPECT_DOUBLE_EQ(sizes[1].backward_flops, 2 * products + 2.5 * attention);
  EXPECT_DOUBLE_EQ(sizes[1].recompute_flops, products - 2.0 * 30 * 24 * 20 + attention);  // not w_down
  EXPECT_EQ(sizes[3].output_bytes, 0);
  EXPECT_EQ(sizes[3].saved_bytes, aligned(30 * 24 * 2) + aligned(30 * 4));  // rows of 19 logits, 24 apart
  EXPECT_DOUBLE_EQ(sizes[3].forward_flops, 2.0 * 30 * 24 * 19);
}

/// FLOPs that the kernels are asked for, not those of a formula; no memory is touched.
double counted(const config::Model& config, const model::Model& model, int module, bool backward, bool recompute) {
  backend::cpu::EmulatedKernels kernels(1e9);  // a FLOP a nanosecond
  std::byte any{};
  const std::vector<const std::byte*> parameters(32, &any);
  const plan::ModelShapes shapes = plan::model_shapes(config);
  std::vector<std::byte*> gradients;
  for (const int p : shapes.modules[static_cast<std::size_t>(module)].parameters) {
    gradients.push_back(shapes.parameters[static_cast<std::size_t>(p)].frozen ? nullptr : &any);
  }
  model::ModuleCall call;
  call.parameters = parameters;
  call.gradients = gradients;
  call.output = recompute ? nullptr : &any;
  backward ? model.backward(module, kernels, call) : model.forward(module, kernels, call);
  return static_cast<double>(kernels.take_nanoseconds());
}

TEST(ModelSizes, FlopsAreWhatTheKernelsAreAskedFor) {
  std::vector<config::Model> all = models();
  all.push_back(small_mlp(3));
  all.back().trainable = {config::Trainable::Mode::blocks, 1, 1};
  for (const config::Model& config : all) {
    const auto model = model::make_model(config, plan::model_shapes(config), batch_of(config, DType::f32));
    const auto sizes = model->sizes();
    for (int m = 0; m < static_cast<int>(sizes.size()); ++m) {
      const plan::ModuleSizes& s = sizes[static_cast<std::size_t>(m)];
      EXPECT_EQ(counted(config, *model, m, false, false), s.forward_flops) << m;
      const bool reached = m >= plan::model_shapes(config).first_trained();  // else it has no backward
      EXPECT_EQ(reached ? counted(config, *model, m, true, false) : 0, s.backward_flops) << m;
      const bool layer = m > 0 && m + 1 < static_cast<int>(sizes.size());
      if (!layer) continue;
      EXPECT_EQ(counted(config, *model, m, false, true), s.recompute_flops) << m;
    }
  }
}

TEST(ModelSizes, OfAnMlpByHand) {
  const config::Model config = small_mlp(2);
  const auto sizes = model::make_model(config, plan::model_shapes(config), {8, 1, DType::f32})->sizes();
  ASSERT_EQ(sizes.size(), 3U);
  EXPECT_EQ(sizes[0].batch_input_bytes, 8 * 7 * 4);
  EXPECT_EQ(sizes[0].batch_target_bytes, 8 * 5 * 4);
  EXPECT_EQ(sizes[0].output_bytes, 8 * 11 * 4);
  EXPECT_DOUBLE_EQ(sizes[0].backward_flops, sizes[0].forward_flops);  // the batch needs no gradient
  EXPECT_DOUBLE_EQ(sizes[1].backward_flops, 2 * sizes[1].forward_flops);
  EXPECT_EQ(sizes[2].output_bytes, 0);
}

}  // namespace
}  // namespace fsdpbench::testing
