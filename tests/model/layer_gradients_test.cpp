// Each layer's backward against central differences of its forward, both in fp32 kernels. The loss is the sum of the
// layer's outputs with fixed random weights, added up in double.
//
// Tolerance: 2e-3 of the tensor's largest gradient. The step of 1e-2 leaves a truncation error of some 1e-4 and a
// rounding error of about 1e-6 / 1e-2.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/kernels.h"
#include "model/linear_map.h"
#include "model/support.h"

namespace fsdpbench::testing {
namespace {

using Floats = std::vector<float>;

class LayerGradients : public ::testing::Test {
 protected:
  std::unique_ptr<backend::Kernels> kernels_ = backend::cpu::make_cpu_kernels();

  static std::byte* bytes(Floats& v) { return reinterpret_cast<std::byte*>(v.data()); }

  static double weighted_sum(const Floats& outputs, const Floats& weights) {
    double sum = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) sum += static_cast<double>(outputs[i]) * weights[i];
    return sum;
  }

  /// `gradient` is what the backward says about `input`, an argument of `loss`.
  static void check(const char* what, Floats& input, const Floats& gradient, const std::function<double()>& loss) {
    constexpr float kStep = 1e-2F;
    float largest = 0;
    for (const float g : gradient) largest = std::max(largest, std::abs(g));
    for (std::size_t i = 0; i < input.size(); ++i) {
      const float before = input[i];
      input[i] = before + kStep;
      const double above = loss();
      const float upper = input[i];
      input[i] = before - kStep;
      const double difference = (above - loss()) / (static_cast<double>(upper) - input[i]);
      input[i] = before;
      ASSERT_NEAR(gradient[i], difference, 2e-3 * largest) << what << '[' << i << ']';
    }
  }
};

TEST_F(LayerGradients, RmsNorm) {
  constexpr std::int64_t kRows = 4, kWidth = 19;
  Floats x = random_values(kRows * kWidth, 1), weight = random_values(kWidth, 2), y(x.size()), rstd(kRows);
  Floats weights = random_values(kRows * kWidth, 3), d_x(x.size()), d_weight(kWidth);
  const auto loss = [&] {
    kernels_->rms_norm({.shape = {kRows, kWidth, DType::f32},
                        .x = bytes(x),
                        .weight = bytes(weight),
                        .y = bytes(y),
                        .rstd = rstd.data(),
                        .epsilon = 1e-5F});
    return weighted_sum(y, weights);
  };
  loss();
  kernels_->rms_norm_backward({.shape = {kRows, kWidth, DType::f32},
                               .d_y = bytes(weights),
                               .x = bytes(x),
                               .weight = bytes(weight),
                               .rstd = rstd.data(),
                               .d_x = bytes(d_x),
                               .d_weight = {bytes(d_weight), DType::f32}});
  check("x", x, d_x, loss);
  check("weight", weight, d_weight, loss);
}

TEST_F(LayerGradients, Rotary) {
  constexpr std::int64_t kBatch = 2, kSeq = 5, kHeads = 2, kSize = 6;
  const auto rotate = [&](Floats& x, bool inverse) {
    kernels_->rotary({kBatch, kSeq, kHeads, 0, kSize, DType::f32}, bytes(x), nullptr, 100.0F, inverse);
  };
  Floats x = random_values(kBatch * kSeq * kHeads * kSize, 1);
  const Floats weights = random_values(static_cast<std::int64_t>(x.size()), 2);
  Floats d_x = weights;
  rotate(d_x, true);
  check("x", x, d_x, [&] {
    Floats y = x;
    rotate(y, false);
    return weighted_sum(y, weights);
  });
}

TEST_F(LayerGradients, GroupedQueryAttention) {
  const backend::AttentionShape shape{2, 7, 4, 2, 6, DType::f32};
  const std::int64_t rows = shape.batch * shape.seq;
  Floats q = random_values(rows * shape.heads * shape.head_dim, 1), out(q.size()), d_q(q.size());
  Floats k = random_values(rows * shape.kv_heads * shape.head_dim, 2), d_k(k.size());
  Floats v = random_values(rows * shape.kv_heads * shape.head_dim, 3), d_v(v.size());
  Floats weights = random_values(static_cast<std::int64_t>(q.size()), 4), statistics(rows * shape.heads);
  GuardedBuffer scratch(backend::attention_scratch_bytes(shape));
  GuardedBuffer backward_scratch(backend::attention_backward_scratch_bytes(shape));
  const auto loss = [&] {
    kernels_->attention({.shape = shape,
                         .q = bytes(q),
                         .k = bytes(k),
                         .v = bytes(v),
                         .out = bytes(out),
                         .log_sum_exp = statistics.data(),
                         .scratch = scratch.data()});
    return weighted_sum(out, weights);
  };
  loss();
  kernels_->attention_backward({.shape = shape,
                                .d_out = bytes(weights),
                                .q = bytes(q),
                                .k = bytes(k),
                                .v = bytes(v),
                                .out = bytes(out),
                                .log_sum_exp = statistics.data(),
                                .d_q = bytes(d_q),
                                .d_k = bytes(d_k),
                                .d_v = bytes(d_v),
                                .scratch = backward_scratch.data()});
  check("q", q, d_q, loss);
  check("k", k, d_k, loss);
  check("v", v, d_v, loss);
}

TEST_F(LayerGradients, SwiGlu) {
  constexpr std::int64_t kCount = 53;
  Floats gate = random_values(kCount, 1, 2.0), up = random_values(kCount, 2), y(kCount);
  Floats weights = random_values(kCount, 3), d_gate(kCount), d_up(kCount);
  const auto loss = [&] {
    kernels_->swiglu({.shape = {1, kCount, DType::f32}, .gate = bytes(gate), .up = bytes(up), .y = bytes(y)});
    return weighted_sum(y, weights);
  };
  kernels_->swiglu_backward({.shape = {1, kCount, DType::f32},
                             .d_y = bytes(weights),
                             .gate = bytes(gate),
                             .up = bytes(up),
                             .d_gate = bytes(d_gate),
                             .d_up = bytes(d_up)});
  check("gate", gate, d_gate, loss);
  check("up", up, d_up, loss);
}

TEST_F(LayerGradients, Embedding) {
  constexpr std::int64_t kVocab = 5, kWidth = 7;
  const std::vector<std::int32_t> tokens{3, 0, 3, 3, 1, 0};
  const auto count = static_cast<std::int64_t>(tokens.size());
  Floats table = random_values(kVocab * kWidth, 1), y(count * kWidth), weights = random_values(count * kWidth, 2);
  Floats d_table(table.size());
  const auto all = backend::VocabularyPart::all(kVocab);
  kernels_->embedding_backward({.shape = {count, kWidth, DType::f32},
                                .part = all,
                                .d_y = bytes(weights),
                                .tokens = tokens.data(),
                                .d_table = {bytes(d_table), DType::f32},
                                .overwrite = true});
  check("table", table, d_table, [&] {
    kernels_->embedding({.shape = {count, kWidth, DType::f32},
                         .part = all,
                         .table = bytes(table),
                         .tokens = tokens.data(),
                         .y = bytes(y)});
    return weighted_sum(y, weights);
  });
}

// The losses return floats, rounded to 6e-8 of themselves: over the step that is about 1e-5 of a gradient.
TEST_F(LayerGradients, CrossEntropy) {
  constexpr std::int64_t kRows = 3, kVocab = 9;
  const std::vector<std::int32_t> targets{8, 0, 4};
  Floats logits = random_values(kRows * kVocab, 1, 2.0);
  float loss = 0;
  const auto run = [&](Floats& x) {
    kernels_->cross_entropy({.part = backend::VocabularyPart::all(kVocab),
                             .rows = kRows,
                             .logits = bytes(x),
                             .targets = targets.data(),
                             .loss = &loss});
    return static_cast<double>(loss);
  };
  Floats gradient = logits;
  run(gradient);
  check("logits", logits, gradient, [&] {
    Floats copy = logits;
    return run(copy);
  });
}

TEST_F(LayerGradients, MeanSquaredError) {
  constexpr std::int64_t kCount = 21;
  Floats prediction = random_values(kCount, 1), d_prediction(kCount), unused(kCount);
  const Floats target = random_values(kCount, 2);
  float loss = 0;
  const auto run = [&](Floats& gradient) {
    kernels_->mean_squared_error({.count = kCount,
                                  .prediction = bytes(prediction),
                                  .target = target.data(),
                                  .d_prediction = bytes(gradient),
                                  .loss = &loss});
    return static_cast<double>(loss);
  };
  run(d_prediction);
  check("prediction", prediction, d_prediction, [&] { return run(unused); });
}

}  // namespace
}  // namespace fsdpbench::testing
