// model.fused_projections: one product where there were three and two, and the numbers of the separate ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/cpu/lane_worker.h"
#include "model/support.h"

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

/// Joined weights of experts: of each its gate's rows, then its up's.
TEST(FusedProjections, OfExpertsAreTheTrainingOfSeparateOnes) {
  const config::Model model = with_experts(small_decoder(1, false));
  const model::BatchShape batch{2, 9, DType::f32};
  const auto kernels = backend::cpu::make_cpu_kernels();
  SingleRank separate(model, batch, *kernels), joined(fused(model), batch, *kernels);
  randomize(joined, fused(model), batch);
  randomize(separate, model, batch);
  const std::int64_t d = model.width, f = model.ffn_width;
  const auto at = [](const SingleRank& rank, const std::string& name) {
    const auto& all = rank.shapes().parameters;
    return static_cast<std::size_t>(std::ranges::find(all, name, &plan::ParameterShape::name) - all.begin());
  };
  /// The rows of each matrix, one matrix after another, for each of `experts`.
  const auto join = [&](const std::vector<std::vector<float>>& matrices, std::int64_t experts) {
    std::vector<float> all;
    for (std::int64_t e = 0; e < experts; ++e) {
      for (const std::vector<float>& m : matrices) {
        const auto size = static_cast<std::int64_t>(m.size()) / experts;
        all.insert(all.end(), m.begin() + e * size, m.begin() + (e + 1) * size);
      }
    }
    return all;
  };
  const std::vector<std::string> qkv{"wq", "wk", "wv"}, gate_up{"w_gate", "w_up"};
  const auto of = [&](const std::vector<std::string>& names, const auto& get) {
    std::vector<std::vector<float>> values;
    for (const std::string& name : names) values.push_back(get(at(separate, "blocks.0." + name)));
    return values;
  };
  for (std::size_t i = 0; i < joined.parameter_count(); ++i) {
    const std::string& name = joined.shapes().parameters[i].name;
    const auto get = [&](std::size_t j) { return separate.parameter(j); };
    if (name.ends_with("wqkv")) {
      joined.set_parameter(i, join(of(qkv, get), 1));
    } else if (name.ends_with("w_gate_up")) {
      joined.set_parameter(i, join(of(gate_up, get), model.experts));
    } else {
      joined.set_parameter(i, separate.parameter(at(separate, name)));
    }
  }
  ASSERT_EQ(joined.parameter(at(joined, "blocks.0.w_gate_up")).size(),
            static_cast<std::size_t>(model.experts * 2 * f * d));
  for (SingleRank* rank : {&separate, &joined}) rank->forward(), rank->backward();
  EXPECT_NEAR(joined.loss(), separate.loss(), 1e-6 * separate.loss());
  const auto gradient = [&](std::size_t j) { return separate.gradient(j); };
  const std::vector<float> got = joined.gradient(at(joined, "blocks.0.w_gate_up")),
                           expected = join(of(gate_up, gradient), model.experts);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5 * norm(expected)) << i;
}

}  // namespace
}  // namespace fsdpbench::testing
