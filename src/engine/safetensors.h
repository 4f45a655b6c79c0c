#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/whole_file.h"

/// Files of named fp32 tensors that others read too: eight bytes with the length of a JSON header, the header, and the
/// tensors' bytes, little-endian (https://github.com/huggingface/safetensors, "Format"). A shard of a checkpoint is
/// one.
namespace fsdpbench::engine {

/// Digest that reveals a flipped bit: XXH3-64 of every block of a file.
struct FileDigest {
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> blocks;  ///< of kBlockBytes each, the last may be shorter
};

/// A tensor of a file.
struct SafeTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< of its first byte in the file

  std::int64_t numel() const;
  std::int64_t bytes() const { return numel() * static_cast<std::int64_t>(sizeof(float)); }
};

/// Writes one, which is whole and on disk once finish() has returned, and else not there. Throws OutputError.
class SafetensorsWriter {
 public:
  /// `tensors` in the order in which they will be written; their `begin` is not looked at.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafeTensor>& tensors,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();

  /// The next elements, of as many tensors as they are.
  void write(std::span<const float> values);
  FileDigest finish();

 private:
  struct Hash;
  void add(std::string_view bytes);

  trace::WholeFile file_;
  std::unique_ptr<Hash> hash_;
  FileDigest digest_;
  const std::vector<SafeTensor> tensors_;
  std::size_t tensor_ = 0;    // that is being written
  std::int64_t written_ = 0;  // elements of it
};

/// Reads one. Nothing of it is in memory but the header. Thread-safe.
class SafetensorsReader {
 public:
  /// `digest`: what the file must be; each block is compared when something of it is first read. Throws ConfigError in
  /// one sentence that names the file if it is no such file, holds other than fp32, has another size, or is damaged.
  SafetensorsReader(std::filesystem::path path, FileDigest digest);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::vector<SafeTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Elements [first, first + out.size()) of `tensor`, one of tensors().
  void read(const SafeTensor& tensor, std::int64_t first, std::span<float> out) const;
  /// Compares all blocks with the digest.
  void verify() const;

 private:
  void read_bytes(std::int64_t begin, std::span<std::byte> out) const;
  void read_unverified(std::int64_t begin, std::span<std::byte> out) const;
  void verify_block(std::size_t block) const;
  void read_header();
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t bytes_ = 0;
  const FileDigest digest_;
  mutable std::vector<std::atomic<bool>> verified_;  // by block
  std::vector<SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace fsdpbench::engine
