// The conformance suite on the CPU, and what is promised of the CPU kernels alone.

#include "backend/cpu/kernels/cpu_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "backend/kernels/kernels_conformance.h"
#include "base/error.h"

namespace fsdpbench::backend {
namespace {

class CpuHost final : public KernelHost {
 public:
  std::byte* allocate(std::int64_t bytes) override {
    memory_.emplace_back(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment)));
    return memory_.back().get();
  }
  void run(const std::function<void(Kernels&)>& work) override { work(*kernels_); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::unique_ptr<Kernels> kernels_ = cpu::make_cpu_kernels();
};

std::unique_ptr<KernelHost> make_cpu_host() { return std::make_unique<CpuHost>(); }

std::string dtype_name(const testing::TestParamInfo<KernelsConformance::ParamType>& test) {
  return std::string(to_string(std::get<1>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelsConformance,
                         testing::Combine(testing::Values(&make_cpu_host), testing::Values(DType::f32, DType::bf16)),
                         dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, MasterKernelsConformance,
                         testing::Combine(testing::Values(&make_cpu_host), testing::Values(DType::f32)), dtype_name);

const std::byte* bytes(const std::vector<float>& v) { return reinterpret_cast<const std::byte*>(v.data()); }
std::byte* bytes(std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); }

std::vector<float> ramp(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 37 % 101 - 50) / 7.0F;
  return values;
}

// Sharding moves elements between the vectorised part of a loop and its remainder.
TEST(CpuKernels, AnElementsBitsDoNotDependOnItsPlace) {
  constexpr std::int64_t kCount = 203;
  const auto kernels = cpu::make_cpu_kernels();
  const std::vector<float> gate = ramp(kCount);
  const std::vector<float> up = ramp(kCount);
  std::vector<float> whole(gate.size());
  kernels->swiglu(bytes(gate), bytes(up), bytes(whole), kCount, DType::f32);
  std::vector<float> parameter = ramp(kCount), m(gate.size()), v(gate.size());
  const AdamWStep step{.learning_rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F, .weight_decay = 0.1F};
  kernels->adamw(parameter.data(), gate.data(), m.data(), v.data(), kCount, step);

  std::vector<float> pieces(gate.size()), piecewise = ramp(kCount), piece_m(gate.size()), piece_v(gate.size());
  for (std::int64_t begin = 0, length = 1; begin < kCount; begin += length, length += 3) {
    const std::int64_t count = std::min(length, kCount - begin);
    kernels->swiglu(bytes(gate) + begin * 4, bytes(up) + begin * 4, bytes(pieces) + begin * 4, count, DType::f32);
    kernels->adamw(piecewise.data() + begin, gate.data() + begin, piece_m.data() + begin, piece_v.data() + begin, count,
                   step);
  }
  EXPECT_EQ(pieces, whole);
  EXPECT_EQ(piecewise, parameter);
}

TEST(CpuKernels, TokensOutsideTheVocabularyAreErrors) {
  const auto kernels = cpu::make_cpu_kernels();
  const std::vector<float> table(12);
  std::vector<float> y(12);
  float loss = 0;
  for (const std::int32_t bad : {-1, 3}) {
    const std::vector<std::int32_t> tokens{0, bad};
    const auto names_it = testing::ThrowsMessage<BackendError>(testing::HasSubstr(std::to_string(bad)));
    EXPECT_THAT([&] { kernels->embedding(bytes(table), tokens.data(), bytes(y), 2, 3, 4, DType::f32); }, names_it);
    EXPECT_THAT([&] { kernels->embedding_backward(bytes(table), tokens.data(), bytes(y), 2, 3, 4, true, DType::f32); },
                names_it);
    EXPECT_THAT(
        [&] {
          kernels->embedding_part(bytes(table), tokens.data(), bytes(y), 2, {0, 1, 3}, 4, DType::f32);
        },
        names_it);
    EXPECT_THAT(
        [&] {
          kernels->cross_entropy_terms(bytes(y), tokens.data(), y.data(), 2, {0, 1, 3}, DType::f32);
        },
        names_it);
    EXPECT_THAT([&] { kernels->cross_entropy(bytes(y), tokens.data(), &loss, 2, 3, 3, 1.0F, DType::f32); }, names_it);
  }
}

TEST(CpuKernels, ThreadsWithTheirOwnKernelsGetTheSameBits) {
  constexpr std::int64_t kSize = 96;
  const std::vector<float> a = ramp(kSize * kSize);
  std::vector<std::vector<float>> results(4, std::vector<float>(a.size()));
  std::vector<std::thread> threads;
  for (std::vector<float>& c : results) {
    threads.emplace_back([&a, &c] {
      const auto kernels = cpu::make_cpu_kernels();
      for (int round = 0; round < 20; ++round) {
        kernels->gemm({.a = bytes(a), .b = bytes(a), .c = bytes(c), .m = kSize, .n = kSize, .k = kSize});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& c : results) EXPECT_EQ(c, results[0]);
}

}  // namespace
}  // namespace fsdpbench::backend
