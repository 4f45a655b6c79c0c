#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/batch_source.h"
#include "support/golden.h"

namespace fsdpbench::testing {

/// The samples of a GoldenDecoder, step by step.
class GoldenTokens : public engine::BatchSource {
 public:
  explicit GoldenTokens(const GoldenDecoder& golden) {
    const config::Train train = golden.train();
    for (std::int64_t step = 0; step < train.steps; ++step) {
      inputs_.push_back(golden.inputs(step));
      targets_.push_back(golden.targets(step));
    }
    batch_ = train.batch_per_rank;
    seq_ = train.seq_len;
  }
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    const auto step = static_cast<std::size_t>(sample / batch_);
    const std::int64_t first = sample % batch_ * seq_;
    std::copy_n(inputs_[step].begin() + first, seq_, out.begin());
    out.back() = targets_[step][static_cast<std::size_t>(first + seq_ - 1)];
  }
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}

 private:
  std::vector<std::vector<std::int32_t>> inputs_, targets_;
  std::int64_t batch_ = 0, seq_ = 0;
};

}  // namespace fsdpbench::testing
