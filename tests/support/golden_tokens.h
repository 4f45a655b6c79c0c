#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/run.h"
#include "support/golden.h"

namespace fsdpbench::testing {

/// The samples of a GoldenDecoder, step by step.
class GoldenTokens : public engine::BatchSource {
 public:
  explicit GoldenTokens(const GoldenDecoder& golden) {
    const config::Train train = golden.train();
    for (std::int64_t step = 0; step < train.steps; ++step) {
      inputs_.push_back(golden.inputs(step));
      targets_.push_back(golden.targets(step));
    }
    batch_ = train.batch_per_rank;
    seq_ = train.seq_len;
  }
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    const auto step = static_cast<std::size_t>(sample / batch_);
    const std::int64_t first = sample % batch_ * seq_;
    std::copy_n(inputs_[step].begin() + first, seq_, out.begin());
    out.back() = targets_[step][static_cast<std::size_t>(first + seq_ - 1)];
  }
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}

 private:
  std::vector<std::vector<std::int32_t>> inputs_, targets_;
  std::int64_t batch_ = 0, seq_ = 0;
};

/// Hooks that begin a training with the golden parameters and keep the last ones; `golden` and `plan` must outlive it.
inline engine::RunHooks golden_hooks(const GoldenDecoder& golden, const plan::Plan& plan) {
  engine::RunHooks hooks;
  hooks.keep_parameters = true;
  hooks.fill = [&](int parameter, std::int64_t begin, std::span<float> out) {
    const std::vector<float> all = golden.initial(plan.shapes.parameters[static_cast<std::size_t>(parameter)].name);
    std::copy_n(all.begin() + begin, out.size(), out.begin());
  };
  return hooks;
}

/// Losses are PyTorch's within `of_loss`, relative, and the distance of the last parameters from PyTorch's is within
/// `of_parameters` of their norm. Adam divides by the gradient's own size, so an element whose gradient is near 0 keeps
/// its relative error, which another processor makes another: one may be off by a step of `train.learning_rate`.
inline void expect_golden(const engine::Measurement& result, const GoldenDecoder& golden, const plan::Plan& plan,
                          double of_loss, double of_parameters) {
  const std::vector<float> losses = golden.losses();
  ASSERT_EQ(result.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(result.losses[i], static_cast<double>(losses[i]), of_loss * static_cast<double>(losses[i])) << i;
  }
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < plan.shapes.parameters.size(); ++i) {
    const std::string& name = plan.shapes.parameters[i].name;
    const std::vector<float> expected = golden.final(name);
    ASSERT_EQ(result.parameters[i].size(), expected.size()) << name;
    for (std::size_t e = 0; e < expected.size(); ++e) {
      const auto theirs = static_cast<double>(expected[e]),
                 error = static_cast<double>(result.parameters[i][e]) - theirs;
      EXPECT_LT(std::abs(error), golden.train().learning_rate) << name << '[' << e << ']';
      distance += error * error;
      norm += theirs * theirs;
    }
  }
  EXPECT_LT(std::sqrt(distance / norm), of_parameters);
}

}  // namespace fsdpbench::testing
