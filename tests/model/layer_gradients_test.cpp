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

  /// What combine's backward says of the rows `x` that experts gave, of `weight`, the visits' in `routing`, and of the
  /// residual, whose gradient is that of the sum. Returns that of `weight`.
  Floats check_combine(const backend::Routing& routing, Floats& weight, Floats& x, Floats& residual,
                       std::int64_t width) {
    Floats weights = random_values(routing.rows * width, 3), y(residual.size());
    Floats d_x(x.size(), 9.0F), d_weight(weight.size(), 9.0F);
    const auto loss = [&] {
      kernels_->combine(
          {.routing = routing, .width = width, .x = bytes(x), .residual = bytes(residual), .y = bytes(y)});
      return weighted_sum(y, weights);
    };
    loss();
    kernels_->combine_backward({.routing = routing,
                                .width = width,
                                .d_y = bytes(weights),
                                .x = bytes(x),
                                .d_x = bytes(d_x),
                                .d_weight = d_weight.data()});
    check("x", x, d_x, loss);
    check("weight", weight, d_weight, loss);
    check("residual", residual, weights, loss);
    return d_weight;
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

/// Logits far enough apart that no difference's step changes whom a token visits.
struct Routed {
  static constexpr std::int64_t kRows = 6, kExperts = 5, kActive = 2;
  Floats logits, weight = Floats(kRows * kActive);
  std::vector<std::int32_t> expert = std::vector<std::int32_t>(weight.size()), place = expert,
                            first = std::vector<std::int32_t>(kExperts + 1);
  backend::Routing routing{.rows = kRows,
                           .experts = kExperts,
                           .active = kActive,
                           .expert = expert.data(),
                           .place = place.data(),
                           .weight = weight.data(),
                           .first = first.data()};

  Routed() {
    std::mt19937 random(3);
    for (std::int64_t row = 0; row < kRows; ++row) {
      Floats of_row{-1.0F, -0.6F, 0.1F, 0.7F, 1.2F};
      std::shuffle(of_row.begin(), of_row.end(), random);
      logits.insert(logits.end(), of_row.begin(), of_row.end());
    }
  }
};

TEST_F(LayerGradients, Router) {
  for (const bool sigmoid : {false, true}) {
    for (const bool normalized : {false, true}) {
      SCOPED_TRACE(::testing::Message() << sigmoid << normalized);
      Routed r;
      r.routing.sigmoid = sigmoid;
      r.routing.normalized = normalized;
      const Floats weights = random_values(static_cast<std::int64_t>(r.weight.size()), 4);
      Floats d_logits(r.logits.size());
      const auto loss = [&] {
        kernels_->route({.routing = r.routing, .logits = bytes(r.logits)});
        return weighted_sum(r.weight, weights);
      };
      loss();
      kernels_->route_backward(
          {.routing = r.routing, .logits = bytes(r.logits), .d_weight = weights.data(), .d_logits = bytes(d_logits)});
      check("logits", r.logits, d_logits, loss);
    }
  }
}

TEST_F(LayerGradients, BalanceOfExperts) {
  Routed r;
  constexpr double kFactor = 0.5;
  Floats d_logits(r.logits.size());
  const Floats none(r.weight.size());
  kernels_->route({.routing = r.routing, .logits = bytes(r.logits)});
  kernels_->route_backward({.routing = r.routing,
                            .logits = bytes(r.logits),
                            .d_weight = none.data(),
                            .balance = kFactor,
                            .d_logits = bytes(d_logits)});
  check("logits", r.logits, d_logits, [&] {  // as transformers' load_balancing_loss_func, whose counts have no gradient
    double sum = 0;
    for (std::int64_t row = 0; row < Routed::kRows; ++row) {
      const float* const logits = r.logits.data() + row * Routed::kExperts;
      double all = 0;
      for (std::int64_t e = 0; e < Routed::kExperts; ++e) all += std::exp(static_cast<double>(logits[e]));
      for (std::int64_t e = 0; e < Routed::kExperts; ++e) {
        const double visits = r.first[static_cast<std::size_t>(e) + 1] - r.first[static_cast<std::size_t>(e)];
        sum += visits / Routed::kRows * std::exp(static_cast<double>(logits[e])) / all / Routed::kRows;
      }
    }
    return kFactor * Routed::kExperts * sum;
  });
}

TEST_F(LayerGradients, RowsOfExperts) {
  constexpr std::int64_t kWidth = 7;
  Routed r;
  kernels_->route({.routing = r.routing, .logits = bytes(r.logits)});
  const auto visits = static_cast<std::int64_t>(r.weight.size());
  Floats x = random_values(visits * kWidth, 1), residual = random_values(Routed::kRows * kWidth, 2);
  check_combine(r.routing, r.weight, x, residual, kWidth);

  // The way to the experts: its gradient is the way back with weights of 1.
  Floats tokens = random_values(Routed::kRows * kWidth, 5), d_tokens(tokens.size()), at_experts(x.size());
  Floats of_experts = random_values(visits * kWidth, 6);
  kernels_->combine(
      {.routing = r.routing, .width = kWidth, .weighted = false, .x = bytes(of_experts), .y = bytes(d_tokens)});
  check("tokens", tokens, d_tokens, [&] {
    kernels_->dispatch({.routing = r.routing, .width = kWidth, .x = bytes(tokens), .y = bytes(at_experts)});
    return weighted_sum(at_experts, of_experts);
  });
}

TEST_F(LayerGradients, RowsThatRanksSendAreRegroupedByExpertAndBack) {
  constexpr std::int64_t kWidth = 3;
  // Rank 0 sends 2, 0 and 1 rows to the three experts, rank 1 sends 1, 0 and 2.
  const std::vector<std::int32_t> visits{2, 0, 1, 1, 0, 2};
  std::vector<std::int32_t> first(4);
  const Floats came = random_values(6 * kWidth, 1);
  const Floats unused(2 * kWidth, 7.0F);  // there is room for more than came
  Floats by_rank = came, by_expert(came.size());
  by_rank.insert(by_rank.end(), unused.begin(), unused.end());
  by_expert.insert(by_expert.end(), unused.begin(), unused.end());
  const auto regroup = [&](bool back) {
    kernels_->regroup({.ranks = 2,
                       .experts = 3,
                       .visits = visits.data(),
                       .first = first.data(),
                       .width = kWidth,
                       .by_rank = bytes(by_rank),
                       .by_expert = bytes(by_expert),
                       .back = back});
  };
  regroup(false);
  EXPECT_EQ(first, (std::vector<std::int32_t>{0, 3, 3, 6}));
  std::size_t place = 0;
  for (const std::size_t row : {0, 1, 3, 2, 4, 5, 6, 7}) {
    for (std::size_t j = 0; j < kWidth; ++j) EXPECT_EQ(by_expert[place * kWidth + j], by_rank[row * kWidth + j]) << row;
    ++place;
  }
  const Floats before = std::exchange(by_rank, Floats(by_rank.size()));
  regroup(true);
  EXPECT_EQ(Floats(by_rank.begin(), by_rank.begin() + std::ssize(came)), came);
}

TEST_F(LayerGradients, OnlyTheRowsThatAreUsedGoThroughSwiglu) {
  constexpr std::int64_t kWidth = 4;
  const std::int32_t used = 2;
  Floats gate = random_values(3 * kWidth, 1), up = random_values(3 * kWidth, 2), y(3 * kWidth, 9.0F), whole(3 * kWidth);
  kernels_->swiglu({.shape = {3, kWidth}, .gate = bytes(gate), .up = bytes(up), .y = bytes(whole)});
  kernels_->swiglu({.shape = {3, kWidth}, .gate = bytes(gate), .up = bytes(up), .y = bytes(y), .used = &used});
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i < 2 * kWidth ? whole[i] : 9.0F) << i;
}

TEST_F(LayerGradients, TiesGoToTheLowerExpertAndRowsOfAnExpertAreInTheOrderOfTokens) {
  Routed r;
  r.logits.assign(r.logits.size(), 0.25F);
  r.logits[7] = 1.0F;                                      // token 1 likes expert 2 most
  r.logits[10] = std::numeric_limits<float>::quiet_NaN();  // nothing is known of token 2's: any two different ones
  kernels_->route({.routing = r.routing, .logits = bytes(r.logits)});
  EXPECT_EQ(r.expert, (std::vector<std::int32_t>{0, 1, 2, 0, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(r.first, (std::vector<std::int32_t>{0, 6, 11, 12, 12, 12}));
  EXPECT_EQ(r.place, (std::vector<std::int32_t>{0, 6, 11, 1, 2, 7, 3, 8, 4, 9, 5, 10}));
}

TEST_F(LayerGradients, ProductsOfExpertsAreTheirOwnAndOneWithoutRowsHasNoGradient) {
  const std::vector<std::int32_t> first{0, 3, 3, 10};
  constexpr std::int64_t kRows = 10, kIn = 6, kOut = 5, kExperts = 3;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto made = [&](std::int64_t count, std::uint32_t seed) {
      return GuardedBuffer::of(random_values(count, seed), dtype);
    };
    GuardedBuffer x = made(kRows * kIn, 1), w = made(kExperts * kOut * kIn, 2), d_y = made(kRows * kOut, 3);
    GuardedBuffer y = made(kRows * kOut, 4), d_x = made(kRows * kIn, 5), d_w = made(kExperts * kOut * kIn, 6);
    const model::LinearMap map{kRows, kIn, kOut, dtype, dtype, kOut, kExperts};
    map.forward(*kernels_, x.data(), w.data(), y.data(), nullptr, first.data());
    map.input_gradient(*kernels_, d_y.data(), w.data(), d_x.data(), false, first.data());
    map.weight_gradient(*kernels_, d_y.data(), x.data(), d_w.data(), first.data());
    EXPECT_TRUE(y.intact() && d_x.intact() && d_w.intact());
    const Floats fx = x.get(dtype), fw = w.get(dtype), fd = d_y.get(dtype);
    const Floats got_y = y.get(dtype), got_x = d_x.get(dtype), got_w = d_w.get(dtype);
    const double near = dtype == DType::bf16 ? 4e-2 : 1e-5;
    for (std::size_t e = 0; e < kExperts; ++e) {
      for (std::int64_t o = 0; o < kOut; ++o) {
        for (std::int64_t i = 0; i < kIn; ++i) {
          double sum = 0;
          for (std::int64_t row = first[e]; row < first[e + 1]; ++row)
            sum += double{fd[row * kOut + o]} * fx[row * kIn + i];
          EXPECT_NEAR(got_w[(e * kOut + o) * kIn + i], sum, near);
        }
      }
      for (std::int64_t row = first[e]; row < first[e + 1]; ++row) {
        for (std::int64_t o = 0; o < kOut; ++o) {
          double sum = 0;
          for (std::int64_t i = 0; i < kIn; ++i) sum += double{fx[row * kIn + i]} * fw[(e * kOut + o) * kIn + i];
          EXPECT_NEAR(got_y[row * kOut + o], sum, near);
        }
        for (std::int64_t i = 0; i < kIn; ++i) {
          double sum = 0;
          for (std::int64_t o = 0; o < kOut; ++o) sum += double{fd[row * kOut + o]} * fw[(e * kOut + o) * kIn + i];
          EXPECT_NEAR(got_x[row * kIn + i], sum, near);
        }
      }
    }
  }
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
