#include <gtest/gtest.h>

#include <cmath>

#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {
namespace {

std::vector<double> product(const Gemm& g, const std::vector<double>& a, const std::vector<double>& b,
                            const std::vector<double>& c) {
  std::vector<double> result(static_cast<std::size_t>(g.m * g.n));
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < g.k; ++l) {
        sum += a[g.transpose_a ? l * g.m + i : i * g.k + l] * b[g.transpose_b ? j * g.k + l : l * g.n + j];
      }
      result[i * g.n + j] = g.alpha * sum + (g.beta == 0 ? 0.0 : c[i * g.n + j]);
    }
  }
  return result;
}

}  // namespace

TEST_P(KernelsConformance, GemmOfAllTransposesOddSizesAlphaAndBeta) {
  const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> sizes{
      {1, 1, 1}, {1, 7, 5}, {5, 1, 7}, {7, 5, 1}, {1, 33, 130}, {3, 5, 7}, {17, 31, 65}, {64, 48, 80}, {129, 67, 33}};
  for (const auto& [m, n, k] : sizes) {
    for (int variant = 0; variant < 16; ++variant) {
      Gemm g;
      g.m = m;
      g.n = n;
      g.k = k;
      g.transpose_a = (variant & 1) != 0;
      g.transpose_b = (variant & 2) != 0;
      g.beta = (variant & 4) != 0 ? 1.0F : 0.0F;
      g.output_dtype = (variant & 8) != 0 ? dtype_ : DType::f32;
      g.input_dtype = dtype_;
      g.alpha = variant % 3 == 0 ? 0.5F : 1.0F;
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << " variant " << variant);
      const Tensor a = random(m * k);
      const Tensor b = random(k * n);
      const Tensor c = g.beta == 0 ? Tensor(*host_, m * n, g.output_dtype) : random(m * n, g.output_dtype);
      const std::vector<double> expected = product(g, a.get(), b.get(), c.get());
      g.a = a.data();
      g.b = b.data();
      g.c = c.data();
      run([&](Kernels& kernels) { kernels.gemm(g); });
      expect_near(c, expected);
    }
  }
}

TEST_P(KernelsConformance, GemmAddsWhatLiesElsewhere) {
  for (const auto& [m, n, k] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{7, 5, 3}, {33, 40, 65}, {4, 6, 0}}) {
    const Tensor a = random(m * k + 1), b = random(k * n + 1), addend = random(m * n), c = tensor(m * n);
    Gemm g{.a = a.data(),
           .b = b.data(),
           .c = c.data(),
           .addend = addend.data(),
           .m = m,
           .n = n,
           .k = k,
           .input_dtype = dtype_,
           .output_dtype = dtype_,
           .beta = 1.0F};
    const std::vector<double> before = addend.get();
    run([&](Kernels& kernels) { kernels.gemm(g); });
    expect_near(c, product(g, a.get(), b.get(), before));
    EXPECT_EQ(addend.get(), before);
  }
}

// Elements between the rows, NaN here, are neither read nor written.
TEST_P(KernelsConformance, GemmOfSlicesOfLargerMatrices) {
  constexpr std::int64_t kRows = 12, kColumns = 10, kDepth = 9;
  const auto sliced = [&](std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    const std::vector<double> values = random(rows * columns).get();
    std::vector<double> spread(static_cast<std::size_t>(rows * stride), std::nan(""));
    for (std::int64_t i = 0; i < rows * columns; ++i) spread[i / columns * stride + i % columns] = values[i];
    return std::pair(values, spread);
  };
  for (int variant = 0; variant < 4; ++variant) {
    const bool ta = (variant & 1) != 0, tb = (variant & 2) != 0;
    Gemm g{.m = kRows,
           .n = kColumns,
           .k = kDepth,
           .transpose_a = ta,
           .transpose_b = tb,
           .input_dtype = dtype_,
           .output_dtype = dtype_,
           .a_stride = 16,
           .b_stride = 24,
           .c_stride = 13};
    const auto [a_values, a_spread] = sliced(ta ? kDepth : kRows, ta ? kRows : kDepth, g.a_stride);
    const auto [b_values, b_spread] = sliced(tb ? kColumns : kDepth, tb ? kDepth : kColumns, g.b_stride);
    const Tensor a = filled(a_spread), b = filled(b_spread), c = tensor(kRows * g.c_stride);
    g.a = a.data();
    g.b = b.data();
    g.c = c.data();
    const std::vector<double> expected = product(g, a_values, b_values, {});
    run([&](Kernels& kernels) { kernels.gemm(g); });
    const std::vector<double> all = c.get();
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < g.c_stride; ++j) {
        const double found = all[i * g.c_stride + j];
        if (j < kColumns) {
          EXPECT_NEAR(found, expected[i * kColumns + j], tolerance() * 10) << i << ", " << j;
        } else {
          EXPECT_TRUE(std::isnan(found)) << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(KernelsConformance, GemmOfNothing) {
  const Tensor c = filled({1, 2, 3, 4});
  run([&](Kernels& kernels) {
    kernels.gemm({.c = c.data(), .m = 0, .n = 4, .k = 3, .input_dtype = dtype_, .output_dtype = dtype_});
    kernels.gemm({.c = c.data(), .m = 4, .n = 0, .k = 3, .input_dtype = dtype_, .output_dtype = dtype_});
    kernels.gemm({.c = c.data(), .m = 2, .n = 2, .k = 0, .input_dtype = dtype_, .output_dtype = dtype_, .beta = 1});
  });
  EXPECT_EQ(c.get(), (std::vector<double>{1, 2, 3, 4}));
  run([&](Kernels& kernels) {
    kernels.gemm({.c = c.data(), .m = 2, .n = 2, .k = 0, .input_dtype = dtype_, .output_dtype = dtype_});
  });
  EXPECT_EQ(c.get(), (std::vector<double>{0, 0, 0, 0}));
}

TEST_P(KernelsConformance, GemmGivesTheSameBitsAgain) {
  const Tensor a = random(70 * 90);
  const Tensor b = random(90 * 50);
  const Tensor first = tensor(70 * 50);
  const Tensor second = tensor(70 * 50);
  for (const Tensor* c : {&first, &second}) {
    run([&](Kernels& kernels) {
      kernels.gemm({.a = a.data(),
                    .b = b.data(),
                    .c = c->data(),
                    .m = 70,
                    .n = 50,
                    .k = 90,
                    .input_dtype = dtype_,
                    .output_dtype = dtype_});
    });
  }
  EXPECT_EQ(first.get(), second.get());
}

}  // namespace fsdpbench::backend
