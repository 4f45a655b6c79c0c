#include "engine/byte_dataset.h"

#include <fmt/format.h>
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/random.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;

bool left_out(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (name.starts_with(".") || entry.is_symlink()) return true;
  return entry.is_directory() && (name.starts_with("build") || name == "runs" || name == "__pycache__");
}

/// Adds all files below `folder`. Throws fs::filesystem_error that names what may not be read: without it the text
/// would be another one.
void add_files_below(const fs::path& folder, std::vector<fs::path>& files) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (left_out(entry)) continue;
    if (entry.is_directory()) {
      add_files_below(entry.path(), files);
    } else if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
}

}  // namespace

ByteDataset::ByteDataset(const fs::path& path, std::int64_t needed_bytes, std::int64_t most_bytes) try {
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
    std::vector<fs::path> files;
    add_files_below(path, files);
    std::ranges::sort(files);
    for (const fs::path& file : files) append_file(file, most_bytes - size());
  } else {
    append_file(path, most_bytes);
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
  const fs::path& which = error.path1();
  throw ConfigError(fmt::format("data.path = \"{}\": {}cannot be read: {}.", path.string(),
                                which == path ? "" : which.string() + ": ", error.code().message()));
}

void ByteDataset::append_file(const fs::path& file, std::size_t room) {
  constexpr std::uintmax_t kFirst = 4096;  // where most binary files have a NUL: the rest of them is not read
  std::ifstream stream(file, std::ios::binary);
  const std::uintmax_t wanted = std::min<std::uintmax_t>(fs::file_size(file), room);
  std::string text;
  for (const std::uintmax_t end : {std::min(wanted, kFirst), wanted}) {
    const std::size_t begin = text.size();
    text.resize(end);
    stream.read(text.data() + begin, static_cast<std::streamsize>(end - begin));
    if (!stream.is_open() || stream.bad()) {
      throw fs::filesystem_error("", file, std::error_code(errno, std::generic_category()));
    }
    text.resize(begin + stream.gcount());
    if (text.find('\0', begin) != std::string::npos) return;
  }
  if (text.empty()) return;
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

}  // namespace fsdpbench::engine
