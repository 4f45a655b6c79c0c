#include <gtest/gtest.h>

#include <cmath>

#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {

TEST_P(KernelsConformance, CastScalesAndRounds) {
  for (const std::int64_t count : {1, 17, 255, 1000}) {
    for (const DType target_dtype : {DType::f32, DType::bf16}) {
      for (const double factor : {1.0, 0.25, 1.0 / 3.0}) {
        const Tensor source = random(count);
        const Tensor target(*host_, count, target_dtype);
        std::vector<double> expected = source.get();
        // One product in fp32, one rounding to the target: to the bit.
        for (double& e : expected) e = static_cast<float>(factor) * static_cast<float>(e);
        const Tensor rounded = filled(expected, target_dtype);
        run([&](Kernels& kernels) {
          kernels.cast(source.elements(), target.elements(), count, static_cast<float>(factor));
        });
        EXPECT_EQ(target.get(), rounded.get());
        if (target_dtype != dtype_) continue;
        run([&](Kernels& kernels) {
          kernels.cast(source.elements(), source.elements(), count, static_cast<float>(factor));
        });
        EXPECT_EQ(source.get(), rounded.get());
      }
    }
  }
}

TEST_P(KernelsConformance, Accumulate) {
  const Tensor source = random(333);
  const Tensor target = random(333, DType::f32);
  const std::vector<double> s = source.get();
  std::vector<double> expected = target.get();
  // Nothing is rounded to the source's dtype on the way, and the source stays as it is.
  for (const float factor : {1.0F, 1.0F / 3.0F}) {
    for (std::size_t i = 0; i < s.size(); ++i) {
      expected[i] = static_cast<float>(expected[i]) + factor * static_cast<float>(s[i]);
    }
    run([&](Kernels& kernels) { kernels.accumulate(source.elements(), target.floats(), 333, factor); });
    EXPECT_EQ(target.get(), expected);
    EXPECT_EQ(source.get(), s);
  }
}

TEST_P(KernelsConformance, CopyRunsConvertsAndPads) {
  std::vector<double> values(100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 4;
  const Tensor source = filled(values);
  for (const DType target_dtype : {DType::f32, DType::bf16}) {
    std::vector<double> expected(60, 7.0);
    const Tensor target = filled(expected, target_dtype);
    const std::vector<CopyRun> runs{
        {.source = 10, .target = 2, .rows = 3, .run = 4, .source_stride = 20, .target_stride = 5, .zero_fill = 2},
        {.source = 0, .target = 30, .rows = 2, .run = 6, .source_stride = 6, .target_stride = 6},
        {.source = 90, .target = 45, .run = 3},
        {.target = 55, .zero_fill = 3},
    };
    for (int row = 0; row < 3; ++row) {
      for (int j = 0; j < 4; ++j) expected[2 + row * 5 + j] = values[10 + row * 20 + j];
    }
    expected[16] = expected[17] = 0;
    for (int j = 0; j < 12; ++j) expected[30 + j] = values[j];
    for (int j = 0; j < 3; ++j) expected[45 + j] = values[90 + j];
    for (int j = 0; j < 3; ++j) expected[55 + j] = 0;
    run([&](Kernels& kernels) { kernels.copy_runs(source.elements(), target.elements(), runs); });
    EXPECT_EQ(target.get(), expected);
  }
}

TEST_P(KernelsConformance, FillZeroTouchesItsBytesOnly) {
  const Tensor t = filled({1, 2, 3, 4, 5});
  run([&](Kernels& kernels) { kernels.fill_zero(t.data() + size_of(dtype_), 3 * size_of(dtype_)); });
  EXPECT_EQ(t.get(), (std::vector<double>{1, 0, 0, 0, 5}));
}

}  // namespace fsdpbench::backend
