#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {

TEST_P(KernelsConformance, CrossEntropy) {
  for (const std::int64_t vocab : {2, 15, 61, 256, 1003}) {
    for (const std::int64_t padding : {0, 3, 8}) {  // NaN, which nobody reads
      const double deviation = padding == 3 ? 30.0 : 1.0;
      constexpr std::int64_t kRows = 11;
      constexpr float kScale = 3.0F;
      const std::int64_t stride = vocab + padding;
      std::vector<double> expected = random(kRows * vocab, deviation).get();
      const auto spread = [&](const std::vector<double>& rows) {
        std::vector<double> all(static_cast<std::size_t>(kRows * stride), std::nan(""));
        for (std::int64_t i = 0; i < kRows * vocab; ++i) all[i / vocab * stride + i % vocab] = rows[i];
        return all;
      };
      const Tensor logits = filled(spread(expected));
      const std::vector<std::int32_t> ids = random_tokens(kRows, vocab);
      const Tensor targets = integers(ids);
      const Tensor loss = floats(1);
      double expected_loss = 0;
      for (std::int64_t row = 0; row < kRows; ++row) {
        double* const x = expected.data() + row * vocab;
        const double largest = *std::max_element(x, x + vocab);
        double sum = 0;
        for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(x[j] - largest);
        expected_loss += (largest + std::log(sum) - x[ids[row]]) / kRows;
        for (std::int64_t j = 0; j < vocab; ++j) {
          x[j] = kScale / kRows * (std::exp(x[j] - largest) / sum - (j == ids[row] ? 1.0 : 0.0));
        }
      }
      run([&](Kernels& kernels) {
        kernels.cross_entropy({.part = VocabularyPart::all(vocab),
                               .rows = kRows,
                               .stride = stride,
                               .dtype = dtype_,
                               .logits = logits.data(),
                               .targets = targets.integers(),
                               .loss = loss.floats(),
                               .loss_scale = kScale});
      });
      EXPECT_NEAR(loss.get()[0], expected_loss, 1e-6 * expected_loss);
      const std::vector<double> all = logits.get();
      std::vector<double> rows;
      for (std::int64_t i = 0; i < kRows * stride; ++i) {
        if (i % stride < vocab) {
          rows.push_back(all[i]);
        } else {
          EXPECT_TRUE(std::isnan(all[i])) << "written between the rows";
        }
      }
      expect_near(filled(rows), expected);
    }
  }
}

TEST_P(KernelsConformance, MeanSquaredError) {
  for (const std::int64_t count : {1, 33, 1000}) {
    constexpr float kScale = 0.5F;
    const Tensor prediction = random(count);
    const Tensor target = random(count, DType::f32);
    const Tensor d_prediction = tensor(count);
    const Tensor loss = floats(1);
    const std::vector<double> p = prediction.get();
    const std::vector<double> t = target.get();
    std::vector<double> expected(p.size());
    double expected_loss = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      expected_loss += (p[i] - t[i]) * (p[i] - t[i]) / static_cast<double>(count);
      expected[i] = kScale * 2.0 * (p[i] - t[i]) / static_cast<double>(count);
    }
    run([&](Kernels& kernels) {
      kernels.mean_squared_error({.count = count,
                                  .dtype = dtype_,
                                  .prediction = prediction.data(),
                                  .target = target.floats(),
                                  .d_prediction = d_prediction.data(),
                                  .loss = loss.floats(),
                                  .loss_scale = kScale});
    });
    EXPECT_NEAR(loss.get()[0], expected_loss, 1e-6 * expected_loss);
    expect_near(d_prediction, expected);
  }
}

}  // namespace fsdpbench::backend
