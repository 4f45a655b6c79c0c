#include <gtest/gtest.h>

#include <cmath>

#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {
namespace {

using Values = std::vector<double>;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Sizes around vector widths.
const std::vector<std::int64_t> kCounts{1, 3, 15, 16, 17, 31, 33, 64, 100, 257, 1023};

}  // namespace

TEST_P(KernelsConformance, RmsNorm) {
  for (const std::int64_t width : kCounts) {
    const std::int64_t rows = width < 100 ? 70 : 3;
    const Tensor x = random(rows * width);
    const Tensor weight = random(width);
    const Tensor y = tensor(rows * width);
    const Tensor rstd = floats(rows);
    constexpr float kEpsilon = 1e-2F;
    run([&](Kernels& kernels) {
      kernels.rms_norm({.shape = {rows, width, dtype_},
                        .x = x.data(),
                        .weight = weight.data(),
                        .y = y.data(),
                        .rstd = rstd.floats(),
                        .epsilon = kEpsilon});
    });
    const Values xs = x.get();
    const Values ws = weight.get();
    Values expected(xs.size());
    Values expected_rstd(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) {
      double squares = 0;
      for (std::int64_t j = 0; j < width; ++j) squares += xs[i * width + j] * xs[i * width + j];
      expected_rstd[i] = 1.0 / std::sqrt(squares / static_cast<double>(width) + kEpsilon);
      for (std::int64_t j = 0; j < width; ++j) expected[i * width + j] = xs[i * width + j] * expected_rstd[i] * ws[j];
    }
    expect_near(y, expected);
    expect_near(rstd, expected_rstd, 1e-6, 1e-6);
  }
}

TEST_P(KernelsConformance, RmsNormBackwardAddsToDxAndOverwritesDWeight) {
  for (const std::int64_t width : kCounts) {
    const std::int64_t rows = width < 100 ? 70 : 3;
    const Tensor d_y = random(rows * width);
    const Tensor x = random(rows * width);
    const Tensor weight = random(width);
    const Tensor rstd = random(rows, DType::f32);
    const Tensor d_x = random(rows * width);
    const Tensor d_weight = tensor(width);
    const Values dys = d_y.get();
    const Values xs = x.get();
    const Values ws = weight.get();
    const Values rs = rstd.get();
    const Values d_x_before = d_x.get();
    Values expected = d_x_before;
    Values expected_weight(static_cast<std::size_t>(width));
    for (std::int64_t i = 0; i < rows; ++i) {
      double dot = 0;
      for (std::int64_t j = 0; j < width; ++j) dot += dys[i * width + j] * ws[j] * xs[i * width + j];
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t at = i * width + j;
        expected[at] += rs[i] * (dys[at] * ws[j] - xs[at] * dot * rs[i] * rs[i] / static_cast<double>(width));
        expected_weight[j] += dys[at] * xs[at] * rs[i];
      }
    }
    const RmsNormBackwardCall call{.shape = {rows, width, dtype_},
                                   .d_y = d_y.data(),
                                   .x = x.data(),
                                   .weight = weight.data(),
                                   .rstd = rstd.floats(),
                                   .d_x = d_x.data(),
                                   .d_weight = d_weight.elements()};
    run([&](Kernels& kernels) { kernels.rms_norm_backward(call); });
    expect_near(d_x, expected);
    expect_near(d_weight, expected_weight);

    // The norm's output again, bit for bit, and the gradients as without it.
    const Tensor y = tensor(rows * width), y_again = tensor(rows * width), own_rstd = floats(rows);
    const Tensor d_x_again = filled(d_x_before), d_weight_again = tensor(width);
    const Tensor d_x_without = filled(d_x_before);
    RmsNormBackwardCall without = call, again = call;
    without.rstd = again.rstd = own_rstd.floats();
    without.d_x = d_x_without.data();
    again.d_x = d_x_again.data();
    again.d_weight = d_weight_again.elements();
    again.y = y_again.data();
    run([&](Kernels& kernels) {
      kernels.rms_norm({.shape = call.shape,
                        .x = x.data(),
                        .weight = weight.data(),
                        .y = y.data(),
                        .rstd = own_rstd.floats(),
                        .epsilon = 1e-2F});
      kernels.rms_norm_backward(without);
      kernels.rms_norm_backward(again);
    });
    EXPECT_EQ(y_again.get(), y.get()) << width;
    EXPECT_EQ(d_x_again.get(), d_x_without.get()) << width;
    EXPECT_EQ(d_weight_again.get(), d_weight.get()) << width;
  }
}

TEST_P(KernelsConformance, RotaryTurnsAndTurnsBack) {
  for (const std::int64_t head_dim : {2, 6, 16, 64, 130}) {
    for (const std::int64_t seq : {1, 9, 40, 20}) {  // shorter after longer, too
      constexpr std::int64_t kBatch = 2, kHeads = 3, kKeyHeads = 1;
      constexpr double kTheta = 500.0;
      const Tensor q = random(kBatch * seq * kHeads * head_dim);
      const Tensor k = random(kBatch * seq * kKeyHeads * head_dim);
      const auto turned = [&](const Values& before, std::int64_t heads) {
        Values after(before.size());
        const std::int64_t half = head_dim / 2;
        for (std::int64_t token = 0; token < kBatch * seq; ++token) {
          for (std::int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(token % seq) *
                                 std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
            for (std::int64_t h = 0; h < heads; ++h) {
              const std::int64_t at = (token * heads + h) * head_dim + i;
              after[at] = before[at] * std::cos(angle) - before[at + half] * std::sin(angle);
              after[at + half] = before[at + half] * std::cos(angle) + before[at] * std::sin(angle);
            }
          }
        }
        return after;
      };
      const auto rotate = [&](bool inverse) {
        run([&](Kernels& kernels) {
          kernels.rotary({kBatch, seq, kHeads, kKeyHeads, head_dim, dtype_}, q.data(), k.data(),
                         static_cast<float>(kTheta), inverse);
        });
      };
      const Values q_before = q.get(), k_before = k.get();
      rotate(false);
      expect_near(q, turned(q_before, kHeads));
      expect_near(k, turned(k_before, kKeyHeads));
      rotate(true);
      expect_near(q, q_before);
      expect_near(k, k_before);
    }
  }
}

TEST_P(KernelsConformance, SwiGlu) {
  for (const std::int64_t count : kCounts) {
    const Tensor gate = random(count, 4.0);
    const Tensor up = random(count);
    const Tensor d_y = random(count);
    const Tensor y = tensor(count);
    const Tensor d_gate = tensor(count);
    const Tensor d_up = tensor(count);
    const Values g = gate.get();
    const Values u = up.get();
    const Values d = d_y.get();
    Values expected(g.size()), expected_gate(g.size()), expected_up(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double s = sigmoid(g[i]);
      expected[i] = g[i] * s * u[i];
      expected_up[i] = d[i] * g[i] * s;
      expected_gate[i] = d[i] * u[i] * s * (1.0 + g[i] * (1.0 - s));
    }
    const SwigluBackwardCall backward{.shape = {1, count, dtype_},
                                      .d_y = d_y.data(),
                                      .gate = gate.data(),
                                      .up = up.data(),
                                      .d_gate = d_gate.data(),
                                      .d_up = d_up.data()};
    run([&](Kernels& kernels) {
      kernels.swiglu({.shape = backward.shape, .gate = gate.data(), .up = up.data(), .y = y.data()});
      kernels.swiglu_backward(backward);
    });
    expect_near(y, expected);
    expect_near(d_gate, expected_gate);
    expect_near(d_up, expected_up);

    for (const bool in_place : {false, true}) {  // the product again, bit for bit, and the gradients as without it
      const Tensor y_again = tensor(count), d_gate_again = tensor(count), d_up_again = tensor(count);
      const Tensor& to = in_place ? d_y : y_again;
      SwigluBackwardCall again = backward;
      again.d_gate = d_gate_again.data();
      again.d_up = d_up_again.data();
      again.y = to.data();
      run([&](Kernels& kernels) { kernels.swiglu_backward(again); });
      EXPECT_EQ(to.get(), y.get()) << in_place;
      EXPECT_EQ(d_gate_again.get(), d_gate.get()) << in_place;
      EXPECT_EQ(d_up_again.get(), d_up.get()) << in_place;
    }
  }
}

TEST_P(KernelsConformance, SwiGluOfExtremeGates) {
  const Tensor gate = filled({-300.0, -100.0, -88.0, 88.0, 100.0, 300.0});
  const Tensor up = filled({1, 1, 1, 1, 1, 1});
  const Tensor y = tensor(6);
  const Tensor d_gate = tensor(6);
  const Tensor d_up = tensor(6);
  run([&](Kernels& kernels) {
    kernels.swiglu({.shape = {1, 6, dtype_}, .gate = gate.data(), .up = up.data(), .y = y.data()});
    kernels.swiglu_backward({.shape = {1, 6, dtype_},
                             .d_y = up.data(),
                             .gate = gate.data(),
                             .up = up.data(),
                             .d_gate = d_gate.data(),
                             .d_up = d_up.data()});
  });
  expect_near(y, {0, 0, 0, 88, 100, 300});
  expect_near(d_gate, {0, 0, 0, 1, 1, 1});
}

TEST_P(KernelsConformance, Embedding) {
  constexpr std::int64_t kCount = 90, kVocab = 13, kWidth = 37;
  std::vector<std::int32_t> ids = random_tokens(kCount, kVocab - 1);  // the last id never occurs
  const Tensor tokens = integers(ids);
  const Tensor table = random(kVocab * kWidth);
  const Tensor y = tensor(kCount * kWidth);
  run([&](Kernels& kernels) {
    kernels.embedding({.shape = {kCount, kWidth, dtype_},
                       .part = VocabularyPart::all(kVocab),
                       .table = table.data(),
                       .tokens = tokens.integers(),
                       .y = y.data()});
  });
  const Values rows = table.get();
  Values expected(kCount * kWidth);
  for (std::int64_t i = 0; i < kCount; ++i) {
    for (std::int64_t j = 0; j < kWidth; ++j) expected[i * kWidth + j] = rows[ids[i] * kWidth + j];
  }
  EXPECT_EQ(y.get(), expected);

  const Tensor d_y = random(kCount * kWidth);
  const Values gradients = d_y.get();
  for (const bool overwrite : {true, false}) {
    const Tensor d_table = overwrite ? tensor(kVocab * kWidth) : random(kVocab * kWidth);
    Values sums = overwrite ? Values(kVocab * kWidth) : d_table.get();
    for (std::int64_t i = 0; i < kCount; ++i) {
      for (std::int64_t j = 0; j < kWidth; ++j) sums[ids[i] * kWidth + j] += gradients[i * kWidth + j];
    }
    run([&](Kernels& kernels) {
      kernels.embedding_backward({.shape = {kCount, kWidth, dtype_},
                                  .part = VocabularyPart::all(kVocab),
                                  .d_y = d_y.data(),
                                  .tokens = tokens.integers(),
                                  .d_table = d_table.elements(),
                                  .overwrite = overwrite});
    });
    expect_near(d_table, sums);
  }
}

/// The rows of a common token are summed kEmbeddingChunk at a time: ones that a sum would lose if it had begun with a
/// large number are not lost.
TEST_P(KernelsConformance, EmbeddingSumsCommonTokensInChunks) {
  constexpr std::int64_t kWidth = 40, kOften = 3 * kEmbeddingChunk + 1, kVocab = 5;
  std::vector<std::int32_t> ids;
  Values rows;
  for (std::int64_t i = 0; i < kOften; ++i) {
    for (const std::int32_t token : {1, 3}) {  // both, so that the chunks of two tokens lie side by side
      ids.push_back(token);
      rows.insert(rows.end(), kWidth, i == 0 ? 1 << 24 : 1.0);
    }
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  const Tensor tokens = integers(ids), d_y = filled(rows, dtype_), d_table = floats(kVocab * kWidth);
  run([&](Kernels& k) {
    k.embedding_backward({.shape = {count, kWidth, dtype_},
                          .part = VocabularyPart::all(kVocab),
                          .d_y = d_y.data(),
                          .tokens = tokens.integers(),
                          .d_table = d_table.elements(),
                          .overwrite = true});
  });
  const double expected = (1 << 24) + 2 * kEmbeddingChunk;  // those of the first chunk and the single last one are lost
  const Values sums = d_table.get();
  for (std::int64_t token = 0; token < kVocab; ++token) {
    const bool common = token == 1 || token == 3;
    EXPECT_EQ(sums[static_cast<std::size_t>(token * kWidth)], common ? expected : 0.0) << token;
    EXPECT_EQ(sums[static_cast<std::size_t>(token * kWidth + kWidth - 1)], common ? expected : 0.0) << token;
  }
}

TEST_P(KernelsConformance, BiasAndItsGradient) {
  for (const std::int64_t width : kCounts) {
    constexpr std::int64_t kRows = 75;
    const Tensor y = random(kRows * width);
    const Tensor bias = random(width);
    const Tensor d_bias = tensor(width);
    Values expected = y.get();
    const Values b = bias.get();
    Values sums(static_cast<std::size_t>(width));
    for (std::int64_t i = 0; i < kRows * width; ++i) {
      sums[i % width] += expected[i];
      expected[i] += b[i % width];
    }
    run([&](Kernels& kernels) {
      kernels.bias_backward({kRows, width, dtype_}, y.data(), d_bias.elements());
      kernels.add_bias({kRows, width, dtype_}, y.data(), bias.data());
    });
    expect_near(d_bias, sums);
    expect_near(y, expected);
  }
}

// Gradients that backward leaves for the reduction: the same sums, rounded or not.
TEST_P(KernelsConformance, GradientsOfParametersInFp32AreThoseBeforeRounding) {
  constexpr std::int64_t kRows = 70, kVocab = 13;
  for (const std::int64_t width : {37, 40, 520}) {
    const Tensor d_y = random(kRows * width), x = random(kRows * width), weight = random(width);
    const Tensor rstd = random(kRows, DType::f32);
    const Tensor tokens = integers(random_tokens(kRows, kVocab));
    const Tensor before = random(kVocab * width);
    const auto rounded = [&](const Tensor& gradient) {
      const Tensor result = tensor(gradient.count());
      run([&](Kernels& k) { k.cast(gradient.elements(), result.elements(), gradient.count(), 1.0F); });
      return result.get();
    };
    /// Runs it with a gradient of so many elements in either dtype.
    const auto compare = [&](const char* name, const Values& old,
                             const std::function<void(Kernels&, const Elements&)>& work) {
      const Tensor plain = filled(old), exact = filled(old, DType::f32);
      run([&](Kernels& k) { work(k, plain.elements()); });
      run([&](Kernels& k) { work(k, exact.elements()); });
      EXPECT_EQ(rounded(exact), plain.get()) << name << ", width " << width;
      EXPECT_EQ(exact.get() == plain.get(), dtype_ == DType::f32) << name << ": bf16 ones were rounded";
    };
    const RowShape shape{kRows, width, dtype_};
    compare("rms_norm", Values(static_cast<std::size_t>(width)), [&](Kernels& k, const Elements& to) {
      const Tensor d_x = random(kRows * width);
      k.rms_norm_backward({.shape = shape,
                           .d_y = d_y.data(),
                           .x = x.data(),
                           .weight = weight.data(),
                           .rstd = rstd.floats(),
                           .d_x = d_x.data(),
                           .d_weight = to});
    });
    compare("bias", Values(static_cast<std::size_t>(width)),
            [&](Kernels& k, const Elements& to) { k.bias_backward(shape, d_y.data(), to); });
    for (const bool overwrite : {true, false}) {
      for (const VocabularyPart part : {VocabularyPart::all(kVocab), VocabularyPart{4, 5, kVocab}}) {
        const Values old = before.get();
        compare(part.count == kVocab ? "embedding" : "embedding of a part",
                {old.begin(), old.begin() + part.count * width}, [&](Kernels& k, const Elements& to) {
                  k.embedding_backward({.shape = shape,
                                        .part = part,
                                        .d_y = d_y.data(),
                                        .tokens = tokens.integers(),
                                        .d_table = to,
                                        .overwrite = overwrite});
                });
      }
    }
  }
}

TEST_P(KernelsConformance, ReluAddAndTheirAliases) {
  for (const std::int64_t count : kCounts) {
    const Tensor x = random(count);
    const Tensor residual = random(count);
    const Tensor y = tensor(count);
    const Tensor d = random(count);
    const Values xs = x.get();
    const Values rs = residual.get();
    const Values ds = d.get();
    Values rectified(xs.size()), masked(xs.size()), sum(xs.size());
    for (std::size_t i = 0; i < xs.size(); ++i) {
      rectified[i] = xs[i] > 0 ? xs[i] : 0.0;
      masked[i] = xs[i] > 0 ? ds[i] : 0.0;
      sum[i] = xs[i] + rs[i];
    }
    const Tensor d_x = tensor(count);
    run([&](Kernels& kernels) {
      kernels.relu(x.data(), y.data(), count, dtype_);
      kernels.relu_backward(d.data(), y.data(), d_x.data(), count, dtype_);
      kernels.relu_backward(d.data(), y.data(), d.data(), count, dtype_);
    });
    EXPECT_EQ(y.get(), rectified);
    EXPECT_EQ(d_x.get(), masked);
    EXPECT_EQ(d.get(), masked);

    run([&](Kernels& kernels) { kernels.add(x.data(), residual.data(), y.data(), count, dtype_); });
    expect_near(y, sum);
    run([&](Kernels& kernels) { kernels.add(x.data(), residual.data(), residual.data(), count, dtype_); });
    EXPECT_EQ(residual.get(), y.get());
    const Tensor again = filled(rs);
    run([&](Kernels& kernels) { kernels.add(x.data(), again.data(), x.data(), count, dtype_); });
    EXPECT_EQ(x.get(), y.get());
  }
}

}  // namespace fsdpbench::backend
