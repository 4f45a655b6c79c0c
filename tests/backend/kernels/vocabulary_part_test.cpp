// A vocabulary in parts on the CPU, against the kernels of the whole one.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "base/error.h"

namespace fsdpbench::backend {
namespace {

constexpr std::int64_t kRows = 7, kVocab = 12, kWidth = 5;

std::vector<float> random_values(std::int64_t count, float deviation = 1.0F) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(generator);
  return values;
}

std::vector<std::int32_t> tokens() { return {0, 11, 3, 3, 7, 4, 8}; }

std::byte* as_bytes(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }
const std::byte* as_bytes(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

VocabularyPart part_of(int index, int parts) { return {index * kVocab / parts, kVocab / parts, kVocab}; }

TEST(VocabularyPart, EmbeddingsAddUpToTheWhole) {
  const auto kernels = cpu::make_cpu_kernels();
  const std::vector<float> table = random_values(kVocab * kWidth);
  std::vector<float> whole(kRows * kWidth), sum(kRows * kWidth, 0.0F);
  kernels->embedding(as_bytes(table), tokens().data(), as_bytes(whole), kRows, kVocab, kWidth, DType::f32);
  for (int p = 0; p < 3; ++p) {
    std::vector<float> of_part(kRows * kWidth, 99.0F);
    const VocabularyPart part = part_of(p, 3);
    kernels->embedding_part(as_bytes(table) + part.first * kWidth * 4, tokens().data(), as_bytes(of_part), kRows, part,
                            kWidth, DType::f32);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_part[i];
  }
  EXPECT_EQ(sum, whole);
}

TEST(VocabularyPart, GradientsOfTheTableAreTheWholesRows) {
  const auto kernels = cpu::make_cpu_kernels();
  const std::vector<float> d_y = random_values(kRows * kWidth);
  for (const bool overwrite : {true, false}) {
    std::vector<float> whole(kVocab * kWidth, 0.5F), parts(kVocab * kWidth, 0.5F);
    kernels->embedding_backward(as_bytes(d_y), tokens().data(), as_bytes(whole), kRows, kVocab, kWidth, overwrite,
                                DType::f32);
    for (int p = 0; p < 3; ++p) {
      const VocabularyPart part = part_of(p, 3);
      kernels->embedding_part_backward(as_bytes(d_y), tokens().data(), as_bytes(parts) + part.first * kWidth * 4, kRows,
                                       part, kWidth, overwrite, DType::f32);
    }
    EXPECT_EQ(parts, whole);
  }
}

TEST(VocabularyPart, LossAndGradientOfLogitsAreTheWholes) {
  const auto kernels = cpu::make_cpu_kernels();
  for (const float deviation : {1.0F, 40.0F}) {  // the second: exponentials that only a common maximum keeps finite
    const std::vector<float> logits = random_values(kRows * kVocab, deviation);
    std::vector<float> whole = logits;
    float loss = 0;
    kernels->cross_entropy(as_bytes(whole), tokens().data(), &loss, kRows, kVocab, kVocab, 0.5F, DType::f32);
    constexpr int kParts = 3;
    std::vector<std::vector<float>> parts(kParts);
    std::vector<float> terms(3 * kRows * kParts);
    for (int p = 0; p < kParts; ++p) {
      const VocabularyPart part = part_of(p, kParts);
      for (std::int64_t row = 0; row < kRows; ++row) {
        const auto first = logits.begin() + row * kVocab + part.first;
        parts[p].insert(parts[p].end(), first, first + part.count);
      }
      kernels->cross_entropy_terms(as_bytes(parts[p]), tokens().data(), terms.data() + 3 * kRows * p, kRows, part,
                                   DType::f32);
    }
    for (int p = 0; p < kParts; ++p) {
      const VocabularyPart part = part_of(p, kParts);
      float of_part = 0;
      kernels->cross_entropy_of_terms(as_bytes(parts[p]), tokens().data(), terms.data(), kParts, &of_part, kRows, part,
                                      0.5F, DType::f32);
      EXPECT_NEAR(of_part, loss, 1e-6 * loss);
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t j = 0; j < part.count; ++j) {
          EXPECT_NEAR(parts[p][row * part.count + j], whole[row * kVocab + part.first + j], 1e-7);
        }
      }
    }
  }
}

TEST(VocabularyPart, TokensOutsideTheWholeVocabularyAreErrors) {
  const auto kernels = cpu::make_cpu_kernels();
  std::vector<float> memory(kVocab * kWidth);
  const std::int32_t token = kVocab;
  EXPECT_THROW(
      kernels->embedding_part(as_bytes(memory), &token, as_bytes(memory), 1, part_of(2, 3), kWidth, DType::f32),
      BackendError);
  EXPECT_THROW(kernels->cross_entropy_terms(as_bytes(memory), &token, memory.data(), 1, part_of(2, 3), DType::f32),
               BackendError);
}

}  // namespace
}  // namespace fsdpbench::backend
