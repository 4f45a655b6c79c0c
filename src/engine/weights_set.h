#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/safetensors.h"

/// Tensors by name in one safetensors file; or in several of bounded size with an index that says which has which, as
/// transformers splits large models: "model-00001-of-00003.safetensors" and "model.safetensors.index.json".
namespace fsdpbench::engine {

/// Reads either. Thread-safe.
class WeightsReader {
 public:
  struct Tensor {
    const SafetensorsReader* file = nullptr;
    const SafeTensor* tensor = nullptr;
    void read(std::int64_t first, std::span<float> out) const { file->read(*tensor, first, out); }
  };

  /// `path`: a file, an index, or a folder with "model.safetensors.index.json" or "model.safetensors". Throws
  /// ConfigError in one sentence that names the file: as SafetensorsReader, an index that is none, a part that is
  /// missing or does not hold what the index says.
  explicit WeightsReader(const std::filesystem::path& path);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  /// The first file's.
  const std::map<std::string, std::string>& metadata() const { return files_.front()->metadata(); }

 private:
  void read_file(const std::filesystem::path& path);
  void read_index(const std::filesystem::path& path);

  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, Tensor> tensors_;
};

/// Writes either: as SafetensorsWriter, a file is whole or not there, and the index is written last.
class WeightsWriter {
 public:
  /// `most_bytes` 0: the file `path`. Else `path` is a folder, made if it is not there, for files of tensors of at most
  /// so many bytes together; a tensor is never split. `tensors` in the order in which they will be written.
  WeightsWriter(const std::filesystem::path& path, const std::vector<SafeTensor>& tensors,
                std::map<std::string, std::string> metadata, std::int64_t most_bytes);

  /// The next elements, none of them of two tensors.
  void write(std::span<const float> values);
  /// Returns the bytes of all files but the index.
  std::int64_t finish();

 private:
  struct Part {
    std::filesystem::path path;
    std::vector<SafeTensor> tensors;
    std::int64_t numel = 0;
  };
  void begin_part();
  void end_part();
  void write_index() const;

  const std::filesystem::path path_;
  const std::map<std::string, std::string> metadata_;
  const bool split_;
  std::vector<Part> parts_;
  std::size_t part_ = 0;   // that is being written
  std::int64_t left_ = 0;  // elements of it
  std::unique_ptr<SafetensorsWriter> writer_;
  std::int64_t bytes_ = 0;
};

}  // namespace fsdpbench::engine
