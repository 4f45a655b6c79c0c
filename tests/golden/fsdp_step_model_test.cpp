// One SGD step of a linear layer against JAX and Flax, through Model and Kernels alone.

#include <gtest/gtest.h>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "support/golden.h"
#include "support/single_rank.h"

namespace fsdpbench::testing {
namespace {

TEST(FsdpStepModel, LossAndUpdateAreFlaxs) {
  const auto kernels = backend::cpu::make_cpu_kernels();
  for (const GoldenStep& golden : golden_steps()) {
    SCOPED_TRACE(golden.name);
    config::Model model;
    model.kind = config::ModelKind::mlp;
    model.layers = 1;
    model.in_features = golden.in;
    model.out_features = golden.out;
    SingleRank rank(model, {golden.batch, 1, DType::f32}, *kernels);
    rank.set_parameter(0, golden.weight);
    rank.set_parameter(1, golden.bias);
    rank.set_batch(golden.x, golden.y);
    rank.forward();
    rank.backward();
    EXPECT_NEAR(rank.loss(), golden.loss, 1e-6 * golden.loss);

    const std::vector<const std::vector<float>*> updated{&golden.new_weight, &golden.new_bias};
    for (std::size_t i = 0; i < updated.size(); ++i) {
      std::vector<float> parameter = rank.parameter(i);
      const std::vector<float> gradient = rank.gradient(i);
      kernels->sgd({.count = static_cast<std::int64_t>(parameter.size()),
                    .parameter = parameter.data(),
                    .gradient = gradient.data()},
                   {.learning_rate = static_cast<float>(golden.learning_rate)});
      ASSERT_EQ(parameter.size(), updated[i]->size());
      for (std::size_t j = 0; j < parameter.size(); ++j) EXPECT_NEAR(parameter[j], (*updated[i])[j], 1e-6) << j;
    }
    EXPECT_TRUE(rank.intact());
  }
}

}  // namespace
}  // namespace fsdpbench::testing
