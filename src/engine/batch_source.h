#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace fsdpbench::engine {

/// What training data are known by again.
struct DataDigest {
  std::int64_t bytes = 0;
  std::uint64_t xxh3_64 = 0;
  bool operator==(const DataDigest&) const = default;
};

/// Training samples by number. Pure functions of the number; called from all ranks' threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Decoder: seq_len + 1 tokens; the model predicts each from those before it.
  virtual void tokens(std::int64_t sample, std::span<std::int32_t> out) const = 0;
  /// Mlp: inputs and targets.
  virtual void features(std::int64_t sample, std::span<float> inputs, std::span<float> targets) const = 0;
  /// Digest of all data that samples are taken from; absent for synthetic samples.
  virtual std::optional<DataDigest> digest() const { return std::nullopt; }
};

}  // namespace fsdpbench::engine
