#include "engine/byte_dataset.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/paths.h"
#include "base/random.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;

bool left_out(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (name.starts_with(".") || entry.is_symlink()) return true;
  return entry.is_directory() && (name.starts_with("build") || name == "runs" || name == "__pycache__");
}

std::vector<fs::path> files_below(const fs::path& folder) {
  (void)fs::directory_iterator(folder);  // of this one, that it may not be read is worth an exception
  std::vector<fs::path> files;
  auto walk = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied);
  for (auto entry = begin(walk); entry != end(walk); ++entry) {
    if (left_out(*entry)) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back(entry->path());
    }
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

ByteDataset::ByteDataset(const fs::path& path, std::int64_t needed_bytes) try {
  if (const std::string why = lookup_error(path); !why.empty()) {
    throw ConfigError(fmt::format("data.path = \"{}\": {}.", path.string(), why));
  }
  if (!path_exists(path)) {
    throw ConfigError(fmt::format("data.path = \"{}\": there is no such file or folder.", path.string()));
  }
  if (is_no_plain_file(path)) {
    throw ConfigError(
        fmt::format("data.path = \"{}\": is a pipe or a device; expected a regular file or a folder.", path.string()));
  }
  if (fs::is_directory(path)) {
    for (const fs::path& file : files_below(path)) append_file(file);
  } else {
    if (!std::ifstream(path)) throw fs::filesystem_error("", std::error_code(errno, std::generic_category()));
    append_file(path);
  }
  if (bytes_.empty()) {
    throw ConfigError(
        fmt::format("data.path = \"{}\": there is no text (empty and binary files do not count).", path.string()));
  }
  if (size() < needed_bytes) {
    throw ConfigError(
        fmt::format("data.path = \"{}\": {} bytes of text are too few: one sample (train.seq_len tokens and the last "
                    "one's target; mlp: "
                    "inputs and targets) needs {}.",
                    path.string(), size(), needed_bytes));
  }
} catch (const fs::filesystem_error& error) {
  throw ConfigError(fmt::format("data.path = \"{}\": cannot be read: {}.", path.string(), error.code().message()));
}

void ByteDataset::append_file(const fs::path& file) {
  const auto room = static_cast<std::size_t>(kMostBytes - size());
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  if (stream) {
    const auto bytes = std::min<std::uintmax_t>(fs::file_size(file), room + 1);
    text.resize(static_cast<std::size_t>(bytes));
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(stream.gcount()));
  }
  if (text.empty() || text.find('\0') != std::string::npos) return;
  if (text.size() > room) {
    truncated_ = true;
    text.resize(room);
  }
  files_ += 1;
  bytes_ += text;
}

std::span<const std::uint8_t> ByteDataset::sample(std::int64_t index, std::int64_t length) const {
  if (length < 1 || length > size()) throw std::out_of_range("ByteDataset::sample: no window of that length");
  const auto places = static_cast<std::uint64_t>(size() - length + 1);
  const std::uint64_t begin = split_mixed(static_cast<std::uint64_t>(index)) % places;
  return {reinterpret_cast<const std::uint8_t*>(bytes_.data()) + begin, static_cast<std::size_t>(length)};
}

void ByteDataset::tokens(std::int64_t index, std::span<std::int32_t> out) const {
  std::ranges::copy(sample(index, std::ssize(out)), out.begin());
}

void ByteDataset::features(std::int64_t index, std::span<float> inputs, std::span<float> targets) const {
  const auto bytes = sample(index, std::ssize(inputs) + std::ssize(targets));
  const auto scaled = [](std::uint8_t byte) { return static_cast<float>(byte) / 127.5F - 1.0F; };
  std::ranges::transform(bytes.first(inputs.size()), inputs.begin(), scaled);
  std::ranges::transform(bytes.last(targets.size()), targets.begin(), scaled);
}

std::optional<DataDigest> ByteDataset::digest() const {
  return DataDigest{size(), XXH3_64bits(bytes_.data(), bytes_.size())};
}

}  // namespace fsdpbench::engine
