// A decoder's losses, gradients and parameters against PyTorch's, through Model and Kernels alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "support/golden.h"
#include "support/single_rank.h"

namespace fsdpbench::testing {
namespace {

float largest(const std::vector<float>& values) {
  float result = 0;
  for (const float v : values) result = std::max(result, std::abs(v));
  return result;
}

class DecoderModel : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenDecoder golden_{GetParam()};
  std::unique_ptr<backend::Kernels> kernels_ = backend::cpu::make_cpu_kernels();
  config::Train train_ = golden_.train();
  SingleRank rank_{golden_.model(), {train_.batch_per_rank, train_.seq_len, DType::f32}, *kernels_};

  void SetUp() override {
    for (std::size_t i = 0; i < rank_.parameter_count(); ++i) rank_.set_parameter(i, golden_.initial(name(i)));
  }
  const std::string& name(std::size_t i) const { return rank_.shapes().parameters[i].name; }
  void run_step(std::int64_t step) {
    rank_.set_batch(golden_.inputs(step), golden_.targets(step));
    rank_.forward();
    rank_.backward();
  }
};

TEST_P(DecoderModel, HasTheCanonicalParameters) {
  const std::vector<std::string> names = golden_.file().facts().at("parameters");
  ASSERT_EQ(names.size(), rank_.parameter_count());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], name(i));
    EXPECT_EQ(golden_.file().shape("initial/" + names[i]), rank_.shapes().parameters[i].shape);
  }
}

TEST_P(DecoderModel, LossAndEveryGradientOfTheFirstStep) {
  run_step(0);
  EXPECT_NEAR(rank_.loss(), golden_.losses()[0], 1e-6 * golden_.losses()[0]);
  for (std::size_t i = 0; i < rank_.parameter_count(); ++i) {
    const std::vector<float> expected = golden_.gradient(name(i));
    const std::vector<float> actual = rank_.gradient(i);
    const double tolerance = 1e-5 * largest(expected);
    for (std::size_t j = 0; j < expected.size(); ++j) {
      ASSERT_NEAR(actual[j], expected[j], tolerance) << name(i) << '[' << j << ']';
    }
  }
  EXPECT_TRUE(rank_.intact());
}

TEST_P(DecoderModel, ParametersAfterAllAdamWSteps) {
  std::vector<GuardedBuffer> first, second;
  for (std::size_t i = 0; i < rank_.parameter_count(); ++i) {
    const std::vector<float> zero(rank_.parameter(i).size(), 0.0F);
    first.push_back(GuardedBuffer::of(zero));
    second.push_back(GuardedBuffer::of(zero));
  }
  for (std::int64_t step = 0; step < train_.steps; ++step) {
    run_step(step);
    EXPECT_NEAR(rank_.loss(), golden_.losses()[step], 3e-6 * golden_.losses()[step]);
    for (std::size_t i = 0; i < rank_.parameter_count(); ++i) {
      std::vector<float> parameter = rank_.parameter(i);
      const std::vector<float> gradient = rank_.gradient(i);
      backend::AdamWStep adamw;
      adamw.learning_rate = static_cast<float>(train_.learning_rate);
      adamw.beta1 = static_cast<float>(train_.beta1);
      adamw.beta2 = static_cast<float>(train_.beta2);
      adamw.epsilon = static_cast<float>(train_.epsilon);
      adamw.weight_decay = static_cast<float>(train_.weight_decay);
      adamw.step = step + 1;
      kernels_->adamw({.count = static_cast<std::int64_t>(parameter.size()),
                       .parameter = parameter.data(),
                       .gradient = gradient.data(),
                       .first_moment = first[i].floats(),
                       .second_moment = second[i].floats()},
                      adamw);
      rank_.set_parameter(i, parameter);
    }
  }
  for (std::size_t i = 0; i < rank_.parameter_count(); ++i) {
    const std::vector<float> expected = golden_.final(name(i));
    const std::vector<float> actual = rank_.parameter(i);
    for (std::size_t j = 0; j < expected.size(); ++j) {
      ASSERT_NEAR(actual[j], expected[j], 1e-5) << name(i) << '[' << j << ']';
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DecoderModel, ::testing::Values("decoder_tied", "decoder_untied"),
                         [](const auto& golden) { return golden.param.substr(golden.param.find('_') + 1); });

}  // namespace
}  // namespace fsdpbench::testing
