#include "backend/cpu/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "backend/cpu/kernels/element.h"
#include "backend/cpu/kernels/vector_math.h"
#include "base/error.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Loss of one row; its logits become scale * (softmax - one_hot(target)).
template <class T>
double cross_entropy_row(T* row, std::int32_t target, std::int64_t vocab, float scale, float* __restrict exponentials) {
  const float largest = lane_max(vocab, [row](std::int64_t j) { return load(row[j]); });
  for (std::int64_t j = 0; j < vocab; ++j) exponentials[j] = fast_exp(load(row[j]) - largest);
  const float sum = lane_sum<float>(vocab, [exponentials](std::int64_t j) { return exponentials[j]; });
  const double loss = std::log(static_cast<double>(sum)) - (static_cast<double>(load(row[target])) - largest);
  const float factor = scale / sum;
  for (std::int64_t j = 0; j < vocab; ++j) store(row[j], exponentials[j] * factor);
  store(row[target], exponentials[target] * factor - scale);
  return loss;
}

void check_target(const std::int32_t* targets, std::int64_t row, std::int64_t vocab) {
  if (targets[row] >= 0 && targets[row] < vocab) return;
  throw BackendError("Target " + std::to_string(targets[row]) + " at position " + std::to_string(row) +
                     " is outside the vocabulary of " + std::to_string(vocab) + ".");
}

}  // namespace

void cross_entropy(const CrossEntropyCall& call, std::vector<float>& exponentials) {
  const std::int64_t vocab = call.part.count, stride = call.stride > 0 ? call.stride : vocab;
  exponentials.resize(static_cast<std::size_t>(vocab));
  const float scale = call.loss_scale / static_cast<float>(call.rows);
  double sum = 0;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t row = 0; row < call.rows; ++row) {
      check_target(call.targets, row, vocab);
      sum += cross_entropy_row(elements<T>(call.logits) + row * stride, call.targets[row], vocab, scale,
                               exponentials.data());
    }
  });
  *call.loss = static_cast<float>(sum / static_cast<double>(call.rows));
}

void cross_entropy_terms(const CrossEntropyCall& call, float* terms) {
  const VocabularyPart& part = call.part;
  const std::int64_t rows = call.rows;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t r = 0; r < rows; ++r) {
      check_target(call.targets, r, part.whole);
      const T* const row = elements<T>(call.logits) + r * part.count;
      const float largest = lane_max(part.count, [row](std::int64_t j) { return load(row[j]); });
      terms[r] = largest;
      terms[rows + r] =
          lane_sum<float>(part.count, [row, largest](std::int64_t j) { return fast_exp(load(row[j]) - largest); });
      terms[2 * rows + r] = part.holds(call.targets[r]) ? load(row[call.targets[r] - part.first]) : 0.0F;
    }
  });
}

void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts) {
  const VocabularyPart& part = call.part;
  const std::int64_t rows = call.rows;
  const std::int32_t* const targets = call.targets;
  const float scale = call.loss_scale / static_cast<float>(rows);
  double losses = 0;
  with_element_type(call.dtype, [&]<class T>(T) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float largest = terms[r], target = 0, sum = 0;
      for (int p = 1; p < parts; ++p) largest = std::max(largest, terms[3 * p * rows + r]);
      for (int p = 0; p < parts; ++p) {  // in the order of the parts, so that all ranks have the same bits
        const float* const of_part = terms + 3 * p * rows;
        sum += of_part[rows + r] * std::exp(of_part[r] - largest);
        target += of_part[2 * rows + r];
      }
      losses += std::log(static_cast<double>(sum)) - (static_cast<double>(target) - largest);
      T* const row = elements<T>(call.logits) + r * part.count;
      const float factor = scale / sum;
      const bool mine = part.holds(targets[r]);
      const std::int64_t at = targets[r] - part.first;
      const float of_target = mine ? fast_exp(load(row[at]) - largest) * factor - scale : 0;
      for (std::int64_t j = 0; j < part.count; ++j) store(row[j], fast_exp(load(row[j]) - largest) * factor);
      if (mine) store(row[at], of_target);
    }
  });
  *call.loss = static_cast<float>(losses / static_cast<double>(rows));
}

void mean_squared_error(const MeanSquaredErrorCall& call) {
  const std::int64_t count = call.count;
  const float scale = 2.0F * call.loss_scale / static_cast<float>(count);
  with_element_type(call.dtype, [&, target = call.target]<class T>(T) {
    const T* const p = elements<T>(call.prediction);
    T* const d = elements<T>(call.d_prediction);
    const double sum = lane_sum<double>(count, [=](std::int64_t i) {
      const double difference = static_cast<double>(load(p[i])) - static_cast<double>(target[i]);
      return difference * difference;
    });
    for (std::int64_t i = 0; i < count; ++i) store(d[i], scale * (load(p[i]) - target[i]));
    *call.loss = static_cast<float>(sum / static_cast<double>(count));
  });
}

}  // namespace fsdpbench::backend::cpu
