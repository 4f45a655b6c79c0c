// Gradients of whole models against central differences of the loss, in fp32: embedding and head alone (tied and
// untied), a block between them, several blocks, and the mlp.
//
// For each parameter tensor the derivative along three directions: the gradient's own with as much of a random one
// mixed in. Tolerance: 1 % of the gradient's length; the loss is a float, so a step of 1e-2
// leaves about 1e-4.

#include <gtest/gtest.h>

#include <ostream>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "model/support.h"

namespace fsdpbench::testing {
namespace {

struct Case {
  const char* name;
  config::Model model;
  model::BatchShape batch;
  double step = 1e-2;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ModelGradients : public ::testing::TestWithParam<Case> {};

TEST_P(ModelGradients, AreTheLosssDifferences) {
  const Case& c = GetParam();
  const auto kernels = backend::cpu::make_cpu_kernels();
  SingleRank rank(c.model, c.batch, *kernels);
  randomize(rank, c.model, c.batch);
  rank.forward();
  rank.backward();
  std::vector<std::vector<float>> gradients;
  for (std::size_t i = 0; i < rank.parameter_count(); ++i) gradients.push_back(rank.gradient(i));

  for (std::size_t i = 0; i < rank.parameter_count(); ++i) {
    const std::vector<float> values = rank.parameter(i);
    const double length = norm(gradients[i]);
    ASSERT_GT(length, 1e-3) << rank.shapes().parameters[i].name << ": too small to check";
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      std::vector<float> direction = random_values(static_cast<std::int64_t>(values.size()), 1000 + seed);
      const double random_length = norm(direction);
      double along = 0;
      for (std::size_t j = 0; j < direction.size(); ++j) {
        direction[j] = static_cast<float>(direction[j] / random_length + gradients[i][j] / length);
        along += static_cast<double>(direction[j]) * gradients[i][j];
      }
      const auto loss_at = [&](double step) {
        std::vector<float> moved = values;
        for (std::size_t j = 0; j < moved.size(); ++j) moved[j] += static_cast<float>(step * direction[j]);
        rank.set_parameter(i, moved);
        rank.forward();
        return static_cast<double>(rank.loss());
      };
      const double difference = (loss_at(c.step) - loss_at(-c.step)) / (2 * c.step);
      rank.set_parameter(i, values);
      EXPECT_NEAR(difference, along, 1e-2 * length) << rank.shapes().parameters[i].name;
    }
  }
  EXPECT_TRUE(rank.intact());
}

INSTANTIATE_TEST_SUITE_P(Models, ModelGradients,
                         ::testing::Values(Case{"tied_head", small_decoder(0, true), {2, 9, DType::f32}},
                                           Case{"untied_head", small_decoder(0, false), {2, 9, DType::f32}},
                                           Case{"one_block", small_decoder(1, false), {2, 9, DType::f32}},
                                           Case{"decoder", small_decoder(3, false), {2, 9, DType::f32}},
                                           // Short steps: few tokens change their experts.
                                           Case{"tied_decoder", small_decoder(2, true), {3, 6, DType::f32}},
                                           Case{"one_linear", small_mlp(1), {8, 1, DType::f32}},
                                           // A short step: few samples cross a kink of ReLU.
                                           Case{"mlp", small_mlp(3), {8, 1, DType::f32}, 1e-3}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace fsdpbench::testing
