// model.fused_projections: one product where there were three and two, and the numbers of the separate ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/cpu/lane_worker.h"
#include "model/support.h"
#include "support/separate_parameters.h"

namespace fsdpbench::testing {
namespace {

/// Counts what is asked for, and computes nothing.
class CountingKernels final : public backend::cpu::EmulatedKernels {
 public:
  CountingKernels() : EmulatedKernels(1) {}
  void gemm(const backend::Gemm& gemm) override {
    if (gemm.transpose_a) {
      ++weight_gradients;
    } else if (gemm.transpose_b) {
      ++forwards;
    } else {
      ++input_gradients;
    }
  }
  int forwards = 0, weight_gradients = 0, input_gradients = 0;
};

CountingKernels products_of(const config::Model& config) {
  const auto model = model::make_model(config, plan::model_shapes(config), {2, 8, DType::bf16});
  CountingKernels kernels;
  std::byte any{};
  const std::vector<const std::byte*> parameters(16, &any);
  const std::vector<std::byte*> gradients(16, &any);
  model::ModuleCall call;
  call.parameters = parameters;
  call.gradients = gradients;
  call.output = &any;
  model->forward(1, kernels, call);
  model->backward(1, kernels, call);
  return kernels;
}

TEST(FusedProjections, AreOneProductOfThreeAndOneOfTwo) {
  const CountingKernels separate = products_of(small_decoder(1, false)),
                        joined = products_of(fused(small_decoder(1, false)));
  EXPECT_EQ(separate.forwards, 7);
  EXPECT_EQ(separate.weight_gradients, 7);
  EXPECT_EQ(separate.input_gradients, 7);
  EXPECT_EQ(joined.forwards, 4);
  EXPECT_EQ(joined.weight_gradients, 4);
  EXPECT_EQ(joined.input_gradients, 4);
}

/// All parameters or gradients of a rank, by the names of separate projections.
template <class Get>
std::map<std::string, std::vector<float>> by_name(const SingleRank& rank, Get get) {
  std::map<std::string, std::vector<float>> all;
  for (const plan::SeparateParameter& one : plan::separate_parameters(rank.shapes().parameters)) {
    const std::vector<float> whole = get(static_cast<std::size_t>(one.parameter));
    all[one.name] = {whole.begin() + one.first, whole.begin() + one.first + one.numel()};
  }
  return all;
}

struct Step {
  Step(const config::Model& config, model::BatchShape batch) : rank(config, batch, *kernels) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch.rows()));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 19);
    rank.set_batch(tokens, tokens);
    rank.forward();
    rank.backward();
  }
  auto parameters() const {
    return by_name(rank, [&](std::size_t i) { return rank.parameter(i); });
  }
  auto gradients() const {
    return by_name(rank, [&](std::size_t i) { return rank.gradient(i); });
  }
  std::unique_ptr<backend::Kernels> kernels = backend::cpu::make_cpu_kernels();
  SingleRank rank;
};

TEST(FusedProjections, BeginWithTheSameNumbersAndComputeTheSame) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t seq : {2, 10, 150}) {
      const Step apart(small_decoder(2, false), {3, seq, dtype}),
          joined(fused(small_decoder(2, false)), {3, seq, dtype});
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << ", " << seq << " tokens");
      EXPECT_EQ(joined.parameters(), apart.parameters());
      const double allowed = dtype == DType::f32 ? 1e-6 : 1e-2;
      EXPECT_NEAR(joined.rank.loss(), apart.rank.loss(), allowed * apart.rank.loss());
      const auto expected = apart.gradients();
      for (const auto& [name, gradient] : joined.gradients()) {
        std::vector<float> difference = gradient;
        for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.at(name)[i];
        EXPECT_LE(norm(difference), (dtype == DType::f32 ? 1e-5 : 3e-2) * norm(expected.at(name))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace fsdpbench::testing
