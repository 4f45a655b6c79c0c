#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {
namespace {

using Values = std::vector<double>;

double read_double(KernelHost& host, const Tensor& t) {
  double value = 0;
  host.run([&](Kernels& kernels) { kernels.download(t.data(), &value, sizeof(value)); });
  return value;
}

}  // namespace

TEST_P(MasterKernelsConformance, SumOfSquaresAndClipFactor) {
  const Tensor first = random(1001, DType::f32);
  const Tensor second = random(77, DType::f32);
  const Tensor sum = floats(2);  // one double
  const auto square_sum = [](const Values& values) {
    double result = 0;
    for (const double v : values) result += v * v;
    return result;
  };
  run([&](Kernels& kernels) {
    kernels.sum_of_squares(first.floats(), 1001, 1.0, reinterpret_cast<double*>(sum.data()), true);
    kernels.sum_of_squares(second.floats(), 77, 0.25, reinterpret_cast<double*>(sum.data()), false);
  });
  const double expected = square_sum(first.get()) + 0.25 * square_sum(second.get());
  EXPECT_NEAR(read_double(*host_, sum), expected, 1e-12 * expected);

  const Tensor factor = floats(1);
  const auto clip = [&](double max_norm) {
    run([&](Kernels& kernels) {
      kernels.clip_factor(reinterpret_cast<const double*>(sum.data()), 1, max_norm, factor.floats());
    });
    return factor.get()[0];
  };
  EXPECT_NEAR(clip(2.0), 2.0 / (std::sqrt(expected) + 1e-6), 1e-7);
  EXPECT_EQ(clip(1e6), 1.0);
}

TEST_P(MasterKernelsConformance, Sgd) {
  for (const bool scaled : {false, true}) {
    const Tensor parameter = random(203, DType::f32);
    const Tensor gradient = random(203, DType::f32);
    const Tensor scale = filled({0.25}, DType::f32);
    const Values g = gradient.get();
    Values expected = parameter.get();
    for (std::size_t i = 0; i < g.size(); ++i) {
      expected[i] -= 0.1 * ((scaled ? 0.25 : 1.0) * g[i] + 0.01 * expected[i]);
    }
    run([&](Kernels& kernels) {
      kernels.sgd({.count = 203, .parameter = parameter.floats(), .gradient = gradient.floats()},
                  {.learning_rate = 0.1F, .weight_decay = 0.01F, .gradient_scale = scaled ? scale.floats() : nullptr});
    });
    expect_near(parameter, expected, 1e-6);
  }
}

TEST_P(MasterKernelsConformance, AdamW) {
  constexpr std::int64_t kCount = 203;
  constexpr float kRate = 0.01F, kBeta1 = 0.9F, kBeta2 = 0.99F, kEpsilon = 1e-6F, kDecay = 0.1F;
  const Tensor parameter = random(kCount, DType::f32);
  const Tensor m = filled(Values(kCount), DType::f32);
  const Tensor v = filled(Values(kCount), DType::f32);
  const Tensor scale = filled({0.5}, DType::f32);
  Values p = parameter.get(), first(kCount), second(kCount);
  for (std::int64_t step = 1; step <= 4; ++step) {
    const Tensor gradient = random(kCount, DType::f32);
    const Values g = gradient.get();
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double d = 0.5 * g[i];
      first[i] = kBeta1 * first[i] + (1.0 - kBeta1) * d;
      second[i] = kBeta2 * second[i] + (1.0 - kBeta2) * d * d;
      const double m_hat = first[i] / (1 - std::pow(static_cast<double>(kBeta1), step));
      const double v_hat = second[i] / (1 - std::pow(static_cast<double>(kBeta2), step));
      p[i] = p[i] * (1.0 - static_cast<double>(kRate) * kDecay) - kRate * m_hat / (std::sqrt(v_hat) + kEpsilon);
    }
    run([&](Kernels& kernels) {
      kernels.adamw({.count = kCount,
                     .parameter = parameter.floats(),
                     .gradient = gradient.floats(),
                     .first_moment = m.floats(),
                     .second_moment = v.floats()},
                    {.learning_rate = kRate,
                     .beta1 = kBeta1,
                     .beta2 = kBeta2,
                     .epsilon = kEpsilon,
                     .weight_decay = kDecay,
                     .step = step,
                     .gradient_scale = scale.floats()});
    });
  }
  expect_near(parameter, p, 1e-6);
  expect_near(m, first, 1e-6);
  expect_near(v, second, 1e-6);
}

/// Bit for bit what a cast of the new parameters gives, and the parameters are what they are without it.
TEST_P(MasterKernelsConformance, UpdatesRoundTheNewParameters) {
  for (const std::int64_t count : {1, 203, 10'007}) {
    const Tensor gradient = random(count, DType::f32);
    const Tensor start = random(count, DType::f32);
    const Tensor m = filled(Values(static_cast<std::size_t>(count)), DType::f32);
    const Tensor v = filled(Values(static_cast<std::size_t>(count)), DType::f32);
    const AdamWStep step{.learning_rate = 0.01F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-6F, .weight_decay = 0.1F};
    for (const bool adamw : {false, true}) {
      const Tensor plain = filled(start.get(), DType::f32), rounding = filled(start.get(), DType::f32);
      const Tensor rounded = random(count, DType::bf16), expected = random(count, DType::bf16);
      run([&](Kernels& kernels) {
        const auto update = [&](const Tensor& parameter, std::byte* to) {
          kernels.fill_zero(m.data(), count * 4);
          kernels.fill_zero(v.data(), count * 4);
          const ParameterUpdate all{.count = count,
                                    .parameter = parameter.floats(),
                                    .gradient = gradient.floats(),
                                    .first_moment = m.floats(),
                                    .second_moment = v.floats(),
                                    .rounded = to};
          adamw ? kernels.adamw(all, step) : kernels.sgd(all, {.learning_rate = 0.1F, .weight_decay = 0.01F});
        };
        update(plain, nullptr);
        update(rounding, rounded.data());
        kernels.cast(plain.elements(), expected.elements(), count, 1.0F);
      });
      EXPECT_EQ(rounding.get(), plain.get()) << count;
      EXPECT_EQ(rounded.get(), expected.get()) << count;
    }
  }
}

/// bf16 is exact in fp32: what reads such gradients gives, bit for bit, what it gives of their cast.
TEST_P(MasterKernelsConformance, GradientsInBf16AreReadAsTheirCast) {
  const AdamWStep step{.learning_rate = 0.01F, .beta1 = 0.9F, .beta2 = 0.99F, .epsilon = 1e-6F, .weight_decay = 0.1F};
  for (const std::int64_t count : {1, 203, 10'007}) {
    const Tensor gradient = random(count, DType::bf16), widened = floats(count);
    const Tensor start = random(count, DType::f32);
    run([&](Kernels& k) { k.cast(gradient.elements(), widened.elements(), count, 1.0F); });
    const auto all_of = [&](const ConstElements& of) {
      const Values zeros(static_cast<std::size_t>(count));
      const Tensor by_sgd = filled(start.get(), DType::f32), by_adamw = filled(start.get(), DType::f32);
      const Tensor m = filled(zeros, DType::f32), v = filled(zeros, DType::f32), rounded = filled(zeros, DType::bf16);
      const Tensor sum = floats(2);  // one double
      run([&](Kernels& k) {
        ParameterUpdate update{.count = count,
                               .parameter = by_adamw.floats(),
                               .gradient = of,
                               .first_moment = m.floats(),
                               .second_moment = v.floats()};
        k.sgd({.count = count, .parameter = by_sgd.floats(), .gradient = of},
              {.learning_rate = 0.1F, .weight_decay = 0.01F});
        k.adamw(update, step);
        update.rounded = rounded.data();
        k.adamw(update, step);
        k.sum_of_squares(of.after(count / 2), count - count / 2, 1.0, reinterpret_cast<double*>(sum.data()), true);
      });
      return std::vector<Values>{by_sgd.get(), by_adamw.get(), m.get(),
                                 v.get(),      rounded.get(),  {read_double(*host_, sum)}};
    };
    EXPECT_EQ(all_of(gradient.elements()), all_of(widened.floats())) << count;
  }
}

}  // namespace fsdpbench::backend
