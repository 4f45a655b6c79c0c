// fsdp.fp32_gradients in a model: the same backward, and parameters' gradients that are not rounded.

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "base/dtype.h"
#include "model/support.h"

namespace fsdpbench::testing {
namespace {

struct TrainedOnce {
  TrainedOnce(const config::Model& config, model::BatchShape batch) : rank(config, batch, *kernels) {
    randomize(rank, config, batch);
    rank.forward();
    rank.backward();
  }
  std::unique_ptr<backend::Kernels> kernels = backend::cpu::make_cpu_kernels();
  SingleRank rank;
};

double largest(const std::vector<float>& values) {
  return std::abs(*std::ranges::max_element(values, {}, [](float value) { return std::abs(value); }));
}

bool fits_in_bf16(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float v) { return bf16_to_float(float_to_bf16(v)) == v; });
}

TEST(Fp32Gradients, AreThoseOfTheSameBackwardBeforeRounding) {
  const auto untied = small_decoder(2, false), tied = small_decoder(2, true);
  for (const config::Model& model : {untied, tied, small_mlp(3)}) {
    const std::int64_t seq = model.kind == config::ModelKind::mlp ? 1 : 10;
    const TrainedOnce rounded(model, {3, seq, DType::bf16}), exact(model, {3, seq, DType::bf16, DType::f32});
    EXPECT_EQ(exact.rank.loss(), rounded.rank.loss());
    EXPECT_TRUE(exact.rank.intact());
    for (std::size_t i = 0; i < exact.rank.parameter_count(); ++i) {
      SCOPED_TRACE(exact.rank.shapes().parameters[i].name);
      const std::vector<float> bf16 = rounded.rank.gradient(i), fp32 = exact.rank.gradient(i);
      EXPECT_TRUE(fits_in_bf16(bf16));
      EXPECT_FALSE(fits_in_bf16(fp32)) << "it was rounded on the way";
      // Libraries may add products in another order if they need not round them; the head of a tied model rounds its
      // part, from which the embedding's may take most away again.
      const bool twice = model.tied_head && i == 0;
      for (std::size_t j = 0; j < bf16.size(); ++j) {
        const double of = twice ? largest(bf16) : std::abs(fp32[j]);
        EXPECT_NEAR(fp32[j], bf16[j], of / 256 + largest(bf16) * 1e-6) << j;
      }
    }
  }
}

}  // namespace
}  // namespace fsdpbench::testing
