#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace fsdpbench::engine {

/// Position in a training.
struct TrainingPosition {
  std::int64_t steps = 0;    ///< optimizer steps done
  std::int64_t samples = 0;  ///< of the data, over all ranks and microbatches: the next one's number
  bool operator==(const TrainingPosition&) const = default;
};

/// Training samples by number. Pure functions of the number; called from all ranks' threads at once.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Decoder: seq_len + 1 tokens; the model predicts each from those before it.
  virtual void tokens(std::int64_t sample, std::span<std::int32_t> out) const = 0;
  /// Mlp: inputs and targets.
  virtual void features(std::int64_t sample, std::span<float> inputs, std::span<float> targets) const = 0;
};

/// Text as one stream of bytes: a file, or all text files below a folder, in the order of their paths. Hidden files
/// and folders, build* and runs folders, and files with NUL bytes (binary ones) are left out; symbolic links are not
/// followed. Of more than `most_bytes` the first are read. Each byte is a token; the mlp learns to continue a piece of
/// text, bytes scaled to [-1, 1].
class ByteDataset : public BatchSource {
 public:
  static constexpr std::int64_t kMostBytes = 256LL << 20;

  /// Reads everything now. Throws ConfigError if there is nothing at `path`, if it or a file or folder below it cannot
  /// be read, or if there are fewer than `needed_bytes` bytes of text (a decoder's sample has seq_len + 1: each token's
  /// target is the next one; an mlp's in_features + out_features).
  ByteDataset(const std::filesystem::path& path, std::int64_t needed_bytes, std::int64_t most_bytes = kMostBytes);

  /// Bytes of all files together, and how many files they are.
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  std::int64_t files() const { return files_; }

  /// `length` consecutive bytes from a place that depends on `index` alone, spread evenly over the text.
  /// 0 < length <= size(). Valid as long as the dataset.
  std::span<const std::uint8_t> sample(std::int64_t index, std::int64_t length) const;

  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override;
  void features(std::int64_t sample, std::span<float> inputs, std::span<float> targets) const override;

 private:
  /// As much of it as `room` bytes have place for.
  void append_file(const std::filesystem::path& file, std::size_t room);

  std::string bytes_;
  std::int64_t files_ = 0;
};

}  // namespace fsdpbench::engine
