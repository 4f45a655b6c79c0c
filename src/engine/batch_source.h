#pragma once

#include <cstdint>
#include <span>

namespace fsdpbench::engine {

/// Training samples by number. Pure functions of the number; called from all ranks' threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Decoder: seq_len + 1 tokens; the model predicts each from those before it.
  virtual void tokens(std::int64_t sample, std::span<std::int32_t> out) const = 0;
  /// Mlp: inputs and targets.
  virtual void features(std::int64_t sample, std::span<float> inputs, std::span<float> targets) const = 0;
};

}  // namespace fsdpbench::engine
