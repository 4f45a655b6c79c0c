// The conformance suite on the CPU, and what is promised of the CPU kernels alone.

#include "backend/cpu/kernels/cpu_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "backend/kernels/kernels_conformance.h"
#include "base/error.h"

namespace fsdpbench::backend {
namespace {

class CpuHost : public KernelHost {
 public:
  explicit CpuHost(std::unique_ptr<Kernels> kernels = cpu::make_cpu_kernels()) : kernels_(std::move(kernels)) {}
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
  std::unique_ptr<Kernels> kernels_;
};

std::unique_ptr<KernelHost> make_cpu_host() { return std::make_unique<CpuHost>(); }

std::unique_ptr<KernelHost> make_shared_host() { return std::make_unique<CpuHost>(cpu::make_shared_cpu_kernels(3)); }

std::string dtype_name(const testing::TestParamInfo<KernelsConformance::ParamType>& test) {
  return std::string(to_string(std::get<1>(test.param)));
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelsConformance,
                         testing::Combine(testing::Values(&make_cpu_host), testing::Values(DType::f32, DType::bf16)),
                         dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, MasterKernelsConformance,
                         testing::Combine(testing::Values(&make_cpu_host), testing::Values(DType::f32)), dtype_name);
INSTANTIATE_TEST_SUITE_P(SharedCpu, MasterKernelsConformance,
                         testing::Combine(testing::Values(&make_shared_host), testing::Values(DType::f32)), dtype_name);

const std::byte* bytes(const std::vector<float>& v) { return reinterpret_cast<const std::byte*>(v.data()); }
std::byte* bytes(std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); }

std::vector<float> ramp(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 37 % 101 - 50) / 7.0F;
  return values;
}

/// All that an update of `count` parameters writes, by kernels of so many threads.
std::vector<std::vector<float>> updated(Kernels& kernels, std::int64_t count) {
  std::vector<float> p = ramp(count), g = ramp(count), m = ramp(count), v = ramp(count), sum = ramp(count), copy(count);
  for (float& x : v) x *= x;
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(count)), cast(static_cast<std::size_t>(count));
  auto* const rounded_bytes = reinterpret_cast<std::byte*>(rounded.data());
  auto* const cast_bytes = reinterpret_cast<std::byte*>(cast.data());
  const float scale = 0.3F;
  const AdamWStep step{.learning_rate = 1e-2F,
                       .beta1 = 0.9F,
                       .beta2 = 0.95F,
                       .epsilon = 1e-8F,
                       .weight_decay = 0.1F,
                       .step = 3,
                       .gradient_scale = &scale};
  kernels.adamw({.count = count,
                 .parameter = p.data(),
                 .gradient = g.data(),
                 .first_moment = m.data(),
                 .second_moment = v.data(),
                 .rounded = rounded_bytes},
                step);
  kernels.sgd({.count = count, .parameter = p.data(), .gradient = g.data()},
              {.learning_rate = 0.1F, .weight_decay = 0.01F, .gradient_scale = &scale});
  kernels.cast(p.data(), {cast_bytes, DType::bf16}, count, 0.7F);
  kernels.accumulate({cast_bytes, DType::bf16}, sum.data(), count, 0.25F);
  kernels.download(bytes(sum), copy.data(), count * 4);
  kernels.upload(copy.data(), bytes(g), count * 4);
  std::vector<float> halves;
  for (const auto* all : {&rounded, &cast}) {
    for (const std::uint16_t bits : *all) halves.push_back(static_cast<float>(bits));
  }
  return {p, g, m, v, sum, copy, halves};
}

TEST(SharedCpuKernels, GiveTheBitsOfOneThreadHoweverManyShare) {
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{65'537}, std::int64_t{300'011}}) {
    const std::unique_ptr<Kernels> alone = cpu::make_cpu_kernels();
    const auto expected = updated(*alone, count);
    for (const int threads : {1, 2, 3, 5, 16}) {
      const std::unique_ptr<Kernels> shared = cpu::make_shared_cpu_kernels(threads);
      for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(updated(*shared, count), expected) << count << ' ' << threads;
    }
  }
}

TEST(Crew, CallsForEveryElementOnceAndThrowsWhatAPartThrew) {
  cpu::Crew crew(4);
  constexpr std::int64_t kCount = 1'000'003;
  std::vector<std::atomic<int>> seen(kCount);
  std::set<std::int64_t> begins;
  std::mutex mutex;
  for (int turn = 0; turn < 100; ++turn) {
    crew.share(kCount, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      const std::lock_guard lock(mutex);
      begins.insert(begin);
    });
  }
  for (const std::atomic<int>& times : seen) ASSERT_EQ(times, 100);
  EXPECT_EQ(begins.size(), 4U);
  for (const std::int64_t begin : begins) EXPECT_EQ(begin % cpu::Crew::kGrain, 0);
  const auto fails = [](std::int64_t begin, std::int64_t) {
    if (begin > 0) throw BackendError("on purpose");
  };
  EXPECT_THROW(crew.share(kCount, fails), BackendError);
  crew.share(kCount, [](std::int64_t, std::int64_t) {});
}

// Sharding moves elements between the vectorised part of a loop and its remainder.
TEST(CpuKernels, AnElementsBitsDoNotDependOnItsPlace) {
  constexpr std::int64_t kCount = 203;
  const auto kernels = cpu::make_cpu_kernels();
  const std::vector<float> gate = ramp(kCount);
  const std::vector<float> up = ramp(kCount);
  std::vector<float> whole(gate.size());
  kernels->swiglu({.shape = {1, kCount, DType::f32}, .gate = bytes(gate), .up = bytes(up), .y = bytes(whole)});
  std::vector<float> parameter = ramp(kCount), m(gate.size()), v(gate.size());
  const AdamWStep step{.learning_rate = 1e-2F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F, .weight_decay = 0.1F};
  kernels->adamw({.count = kCount,
                  .parameter = parameter.data(),
                  .gradient = gate.data(),
                  .first_moment = m.data(),
                  .second_moment = v.data()},
                 step);

  std::vector<float> pieces(gate.size()), piecewise = ramp(kCount), piece_m(gate.size()), piece_v(gate.size());
  for (std::int64_t begin = 0, length = 1; begin < kCount; begin += length, length += 3) {
    const std::int64_t count = std::min(length, kCount - begin);
    kernels->swiglu({.shape = {1, count, DType::f32},
                     .gate = bytes(gate) + begin * 4,
                     .up = bytes(up) + begin * 4,
                     .y = bytes(pieces) + begin * 4});
    kernels->adamw({.count = count,
                    .parameter = piecewise.data() + begin,
                    .gradient = gate.data() + begin,
                    .first_moment = piece_m.data() + begin,
                    .second_moment = piece_v.data() + begin},
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
    const RowShape rows{2, 4, DType::f32};
    for (const VocabularyPart part : {VocabularyPart::all(3), VocabularyPart{0, 1, 3}}) {
      const EmbeddingCall look_up{
          .shape = rows, .part = part, .table = bytes(table), .tokens = tokens.data(), .y = bytes(y)};
      const EmbeddingBackwardCall add{.shape = rows,
                                      .part = part,
                                      .d_y = bytes(table),
                                      .tokens = tokens.data(),
                                      .d_table = {bytes(y), DType::f32},
                                      .overwrite = true};
      const CrossEntropyCall loss_of{
          .part = part, .rows = 2, .logits = bytes(y), .targets = tokens.data(), .loss = &loss};
      EXPECT_THAT([&] { kernels->embedding(look_up); }, names_it);
      EXPECT_THAT([&] { kernels->embedding_backward(add); }, names_it);
      EXPECT_THAT([&] { kernels->cross_entropy_terms(loss_of, y.data()); }, names_it);
      if (part.count != part.whole) continue;
      EXPECT_THAT([&] { kernels->cross_entropy(loss_of); }, names_it);
    }
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
