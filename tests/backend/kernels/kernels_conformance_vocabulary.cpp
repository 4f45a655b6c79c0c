// A vocabulary in parts, against the kernels of the whole one.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend {
namespace {

constexpr int kParts = 3;
constexpr std::int64_t kRows = 21;

VocabularyPart part_of(int index, std::int64_t vocab) { return {index * vocab / kParts, vocab / kParts, vocab}; }

/// Rows [first, first + count) of a matrix with rows of `width`.
std::vector<double> rows_of(const std::vector<double>& matrix, std::int64_t first, std::int64_t count,
                            std::int64_t width) {
  return {matrix.begin() + first * width, matrix.begin() + (first + count) * width};
}

}  // namespace

TEST_P(KernelsConformance, EmbeddingsOfPartsAddUpToTheWhole) {
  for (const std::int64_t vocab : {12, 300}) {
    for (const std::int64_t width : {5, 64}) {
      const Tensor table = random(vocab * width);
      const Tensor tokens = integers(random_tokens(kRows, vocab));
      const Tensor whole = tensor(kRows * width);
      const auto embed = [&](const VocabularyPart& part, const Tensor& rows, const Tensor& y) {
        run([&](Kernels& k) {
          k.embedding({.shape = {kRows, width, dtype_},
                       .part = part,
                       .table = rows.data(),
                       .tokens = tokens.integers(),
                       .y = y.data()});
        });
      };
      embed(VocabularyPart::all(vocab), table, whole);
      std::vector<double> sum(static_cast<std::size_t>(kRows * width));
      for (int p = 0; p < kParts; ++p) {
        const VocabularyPart part = part_of(p, vocab);
        const Tensor rows = filled(rows_of(table.get(), part.first, part.count, width));
        const Tensor of_part = tensor(kRows * width);
        embed(part, rows, of_part);
        const std::vector<double> values = of_part.get();
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      EXPECT_EQ(sum, whole.get());
    }
  }
}

TEST_P(KernelsConformance, GradientsOfATablesPartAreTheWholesRows) {
  constexpr std::int64_t kVocab = 12, kWidth = 70;
  const Tensor d_y = random(kRows * kWidth);
  const Tensor tokens = integers(random_tokens(kRows, kVocab));
  for (const bool overwrite : {true, false}) {
    const Tensor whole = random(kVocab * kWidth);
    const std::vector<double> before = whole.get();
    const auto add_up = [&](const VocabularyPart& part, const Tensor& d_table) {
      run([&](Kernels& k) {
        k.embedding_backward({.shape = {kRows, kWidth, dtype_},
                              .part = part,
                              .d_y = d_y.data(),
                              .tokens = tokens.integers(),
                              .d_table = d_table.elements(),
                              .overwrite = overwrite});
      });
    };
    add_up(VocabularyPart::all(kVocab), whole);
    for (int p = 0; p < kParts; ++p) {
      const VocabularyPart part = part_of(p, kVocab);
      const Tensor rows = filled(rows_of(before, part.first, part.count, kWidth));
      add_up(part, rows);
      EXPECT_EQ(rows.get(), rows_of(whole.get(), part.first, part.count, kWidth)) << p;
    }
  }
}

TEST_P(KernelsConformance, LossAndGradientsOfPartsOfLogitsAreTheWholes) {
  constexpr float kScale = 0.5F;
  for (const std::int64_t vocab : {12, 771}) {
    for (const double deviation : {1.0, 40.0}) {  // the second: exponentials that only a common maximum keeps finite
      const Tensor whole = random(kRows * vocab, deviation);
      const Tensor targets = integers(random_tokens(kRows, vocab));
      const std::vector<double> logits = whole.get();
      const Tensor loss = floats(1);
      const Tensor terms = floats(3 * kRows * kParts);
      std::vector<Tensor> parts;
      for (int p = 0; p < kParts; ++p) {
        const VocabularyPart part = part_of(p, vocab);
        std::vector<double> columns;
        for (std::int64_t row = 0; row < kRows; ++row) {
          const std::vector<double> some = rows_of(logits, row * vocab + part.first, part.count, 1);
          columns.insert(columns.end(), some.begin(), some.end());
        }
        parts.push_back(filled(columns));
      }
      const auto call = [&](const VocabularyPart& part, const Tensor& of_part, float* to) {
        return CrossEntropyCall{.part = part,
                                .rows = kRows,
                                .dtype = dtype_,
                                .logits = of_part.data(),
                                .targets = targets.integers(),
                                .loss = to,
                                .loss_scale = kScale};
      };
      run([&](Kernels& k) {
        k.cross_entropy(call(VocabularyPart::all(vocab), whole, loss.floats()));
        for (int p = 0; p < kParts; ++p) {
          k.cross_entropy_terms(call(part_of(p, vocab), parts[p], nullptr), terms.floats() + 3 * kRows * p);
        }
      });
      const std::vector<double> gradients = whole.get();
      std::vector<double> losses;
      for (int p = 0; p < kParts; ++p) {
        const VocabularyPart part = part_of(p, vocab);
        const Tensor of_part = floats(1);
        run([&](Kernels& k) {
          k.cross_entropy_of_terms(call(part, parts[p], of_part.floats()), terms.floats(), kParts);
        });
        losses.push_back(of_part.get()[0]);
        std::vector<double> expected;
        for (std::int64_t row = 0; row < kRows; ++row) {
          const std::vector<double> some = rows_of(gradients, row * vocab + part.first, part.count, 1);
          expected.insert(expected.end(), some.begin(), some.end());
        }
        expect_near(parts[p], expected, 1e-5, 1e-2);
      }
      EXPECT_NEAR(losses[0], loss.get()[0], 1e-6 * loss.get()[0]);
      EXPECT_EQ(losses, std::vector<double>(kParts, losses[0])) << "all ranks have the same bits";
    }
  }
}

}  // namespace fsdpbench::backend
