#include "backend/cpu/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/dtype.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Stored rows x columns with a gap after each row.
struct Operand {
  std::int64_t stride = 0;
  std::vector<std::uint16_t> bits;
  std::vector<float> widened;

  Operand(std::int64_t rows, std::int64_t columns, unsigned seed) : stride(columns + 3) {
    for (std::int64_t i = 0; i < rows * stride; ++i) {
      seed = seed * 1664525U + 1013904223U;
      bits.push_back(float_to_bf16(static_cast<float>(seed >> 8) / 8388608.0F - 1.0F));
      widened.push_back(bf16_to_float(bits.back()));
    }
  }
  double at(std::int64_t row, std::int64_t column, bool transposed) const {
    const std::int64_t i = transposed ? column * stride + row : row * stride + column;
    return static_cast<double>(widened[static_cast<std::size_t>(i)]);
  }
};

MatmulShape shape_of(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b, DType output,
                     float beta) {
  return {m, n, k, 0, 0, n + 5, transpose_a, transpose_b, DType::bf16, output, 0.5F, beta};
}

std::vector<MatmulShape> shapes() {
  std::vector<MatmulShape> all;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const DType output : {DType::f32, DType::bf16}) {
        for (const float beta : {0.0F, 1.0F}) {
          all.push_back(shape_of(13, 37, 29, transpose_a, transpose_b, output, beta));
        }
      }
    }
  }
  return all;
}

class Bf16Matmul : public ::testing::TestWithParam<Matmul::Bf16> {
 protected:
  void SetUp() override {
    if (GetParam() == Matmul::Bf16::multiplied && Matmul::faster() == Matmul::Bf16::widened) {
      GTEST_SKIP() << "this processor cannot multiply bf16";
    }
  }
};

/// Against sums in double: k roundings to fp32 in any order, and one to the output's dtype.
void expect_product(Matmul& matmul, MatmulShape s) {
  const Operand a(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, 1);
  const Operand b(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, 2);
  s.a_stride = a.stride;
  s.b_stride = b.stride;
  std::vector<float> c(static_cast<std::size_t>(s.m * s.c_stride), 0.25F);
  std::vector<std::uint16_t> c_bits(c.size(), float_to_bf16(0.25F));
  matmul(s, a.bits.data(), b.bits.data(),
         s.output == DType::f32 ? static_cast<void*>(c.data()) : static_cast<void*>(c_bits.data()));
  for (std::int64_t m = 0; m < s.m; ++m) {
    for (std::int64_t n = 0; n < s.c_stride; ++n) {
      const auto i = static_cast<std::size_t>(m * s.c_stride + n);
      const auto got = static_cast<double>(s.output == DType::f32 ? c[i] : bf16_to_float(c_bits[i]));
      if (n >= s.n) {
        ASSERT_EQ(got, 0.25) << "beside the matrix";
        continue;
      }
      double sum = 0;
      double size = 0;
      for (std::int64_t k = 0; k < s.k; ++k) {
        const double product = a.at(m, k, s.transpose_a) * b.at(k, n, s.transpose_b);
        sum += product;
        size += std::abs(product);
      }
      const double expected = 0.5 * sum + static_cast<double>(s.beta) * 0.25;
      const double rounding = s.output == DType::bf16 ? std::abs(expected) * 0x1p-8 : 0;
      ASSERT_NEAR(got, expected, rounding + (size + 1) * static_cast<double>(s.k) * 0x1p-24) << m << ", " << n;
    }
  }
}

TEST_P(Bf16Matmul, AgreesWithExactSumsWithinRounding) {
  Matmul matmul(GetParam());
  for (const MatmulShape& s : shapes()) expect_product(matmul, s);
}

INSTANTIATE_TEST_SUITE_P(Ways, Bf16Matmul, ::testing::Values(Matmul::Bf16::multiplied, Matmul::Bf16::widened),
                         [](const auto& way) { return way.param == Matmul::Bf16::widened ? "widened" : "multiplied"; });

TEST(WidenedMatmul, HasTheBitsOfTheFp32Product) {
  Matmul widened(Matmul::Bf16::widened);
  for (MatmulShape s : shapes()) {
    if (s.output != DType::f32) continue;
    // Rows without gaps, as the copies have.
    const std::int64_t a_columns = s.transpose_a ? s.m : s.k;
    const std::int64_t b_columns = s.transpose_b ? s.k : s.n;
    s.a_stride = a_columns;
    s.b_stride = b_columns;
    const Operand a(1, s.m * s.k, 3);
    const Operand b(1, s.k * s.n, 4);
    std::vector<float> got(static_cast<std::size_t>(s.m * s.c_stride), 1.0F);
    std::vector<float> expected = got;
    widened(s, a.bits.data(), b.bits.data(), got.data());
    s.input = DType::f32;
    widened(s, a.widened.data(), b.widened.data(), expected.data());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  }
}

TEST(WidenedMatmul, GoesPanelByPanelWhereOperandsAreLarge) {
  Matmul widened(Matmul::Bf16::widened);
  for (const bool transposed : {false, true}) {
    expect_product(widened, shape_of(66, 3, 70'000, transposed, transposed, DType::bf16, 1.0F));
    expect_product(widened, shape_of(3, 66, 70'000, transposed, transposed, DType::f32, 0.0F));
  }
}

}  // namespace
}  // namespace fsdpbench::backend::cpu
