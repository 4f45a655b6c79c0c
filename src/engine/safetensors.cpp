#include "engine/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::engine {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // as others have it

/// The header, padded with spaces so that the tensors begin at a multiple of eight.
std::string header_of(const std::vector<SafeTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const SafeTensor& tensor : tensors) {
    const std::int64_t end = at + tensor.bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize(round_up(std::ssize(text), kLengthBytes), ' ');
  return text;
}

}  // namespace

std::int64_t SafeTensor::numel() const {
  std::int64_t numel = 1;
  for (const std::int64_t size : shape) numel *= size;
  return numel;
}

struct SafetensorsWriter::Hash {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state{XXH3_createState(), &XXH3_freeState};
  Hash() { XXH3_64bits_reset(state.get()); }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafeTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path.string(), trace::WholeFile::Fate::synced), hash_(std::make_unique<Hash>()), tensors_(tensors) {
  const std::string header = header_of(tensors, metadata);
  const std::uint64_t length = header.size();
  add({reinterpret_cast<const char*>(&length), sizeof length});
  add(header);
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::span<const float> values) {
  while (!values.empty()) {
    const SafeTensor& tensor = tensors_.at(tensor_);
    const std::size_t left = tensor.numel() - written_;
    const std::span<const float> some = values.first(std::min(values.size(), left));
    add({reinterpret_cast<const char*>(some.data()), some.size_bytes()});
    written_ += std::ssize(some);
    values = values.subspan(some.size());
    if (written_ < tensor.numel()) continue;
    ++tensor_;
    written_ = 0;
  }
}

void SafetensorsWriter::add(std::string_view bytes) {
  file_.write(bytes);
  while (!bytes.empty()) {
    const std::int64_t room = FileDigest::kBlockBytes - digest_.bytes % FileDigest::kBlockBytes;
    const std::string_view some = bytes.substr(0, room);
    XXH3_64bits_update(hash_->state.get(), some.data(), some.size());
    digest_.bytes += static_cast<std::int64_t>(some.size());
    if (digest_.bytes % FileDigest::kBlockBytes == 0) {
      digest_.blocks.push_back(XXH3_64bits_digest(hash_->state.get()));
      XXH3_64bits_reset(hash_->state.get());
    }
    bytes.remove_prefix(some.size());
  }
}

FileDigest SafetensorsWriter::finish() {
  if (digest_.bytes % FileDigest::kBlockBytes != 0) digest_.blocks.push_back(XXH3_64bits_digest(hash_->state.get()));
  file_.commit();
  return digest_;
}

SafetensorsReader::SafetensorsReader(std::filesystem::path path, FileDigest digest)
    : path_(std::move(path)), digest_(std::move(digest)), verified_(digest_.blocks.size()) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for ever
  if (file_ < 0) fail(fmt::format("cannot be opened: {}", std::strerror(errno)));
  try {
    struct stat status {};
    if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) fail("is no regular file");
    bytes_ = status.st_size;
    if (digest_.bytes != bytes_) fail(fmt::format("has {} bytes and was saved with {}", bytes_, digest_.bytes));
    if (std::ssize(digest_.blocks) != ceil_div(bytes_, FileDigest::kBlockBytes)) {
      fail(fmt::format("has {} bytes and digests of {} blocks", bytes_, digest_.blocks.size()));
    }
    read_header();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { ::close(file_); }

void SafetensorsReader::fail(const std::string& what) const {
  throw ConfigError(fmt::format("{}: {}; expected a whole safetensors file of fp32 tensors.", path_.string(), what));
}

void SafetensorsReader::read_header() {
  std::uint64_t length = 0;
  if (bytes_ < kLengthBytes) fail("is too short for a header");
  read_bytes(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(std::min(kMostHeaderBytes, bytes_ - kLengthBytes))) {
    fail(fmt::format("says that its header has {} bytes, of {} in all", length, bytes_));
  }
  std::string text(length, '\0');
  read_bytes(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{')) fail("has a header that does not begin with {");
  const json header = json::parse(text, nullptr, false);
  if (!header.is_object()) fail("has a header that is no JSON object");
  const std::int64_t data = kLengthBytes + static_cast<std::int64_t>(length);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) fail("has metadata that are no JSON object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail(fmt::format("{} in its metadata is no text", key));
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    try {
      const json& dtype = entry.at("dtype");
      if (dtype != "F32") fail(fmt::format("holds {} as {}", name, dtype.dump()));
      SafeTensor tensor{name, entry.at("shape").get<std::vector<std::int64_t>>(), 0};
      const auto offsets = entry.at("data_offsets").get<std::vector<std::int64_t>>();
      // The product of hostile sizes may not overflow: each factor leaves room for the next.
      std::int64_t numel = 1;
      for (const std::int64_t size : tensor.shape) {
        if (size < 0 || (size > 0 && numel > bytes_ / size)) fail(fmt::format("gives {} an impossible shape", name));
        numel *= size;
      }
      if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] > bytes_ - data ||
          offsets[1] - offsets[0] != tensor.bytes()) {
        fail(fmt::format("does not hold all of {}", name));
      }
      tensor.begin = data + offsets[0];
      tensors_.push_back(std::move(tensor));
    } catch (const json::exception&) {
      fail(fmt::format("describes {} otherwise than by dtype, shape and data_offsets", name));
    }
  }
}

void SafetensorsReader::read(const SafeTensor& tensor, std::int64_t first, std::span<float> out) const {
  read_bytes(tensor.begin + first * static_cast<std::int64_t>(sizeof(float)), std::as_writable_bytes(out));
}

void SafetensorsReader::verify() const {
  for (std::size_t block = 0; block < digest_.blocks.size(); ++block) verify_block(block);
}

void SafetensorsReader::verify_block(std::size_t block) const {
  if (verified_[block].load(std::memory_order_relaxed)) return;
  const std::int64_t begin = static_cast<std::int64_t>(block) * FileDigest::kBlockBytes;
  std::vector<std::byte> bytes(std::min(FileDigest::kBlockBytes, bytes_ - begin));
  read_unverified(begin, bytes);
  if (XXH3_64bits(bytes.data(), bytes.size()) != digest_.blocks[block]) {
    fail(fmt::format("is damaged: bytes {} to {} are not those that were saved", begin,
                     begin + static_cast<std::int64_t>(bytes.size()) - 1));
  }
  verified_[block].store(true, std::memory_order_relaxed);
}

void SafetensorsReader::read_bytes(std::int64_t begin, std::span<std::byte> out) const {
  if (!out.empty()) {
    const std::int64_t last = (begin + static_cast<std::int64_t>(out.size()) - 1) / FileDigest::kBlockBytes;
    for (std::int64_t block = begin / FileDigest::kBlockBytes; block <= last; ++block) {
      verify_block(block);
    }
  }
  read_unverified(begin, out);
}

void SafetensorsReader::read_unverified(std::int64_t begin, std::span<std::byte> out) const {
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(file_, out.data() + done, out.size() - done, begin + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail(fmt::format("cannot be read: {}", got < 0 ? std::strerror(errno) : "it became shorter"));
    done += got;
  }
}

}  // namespace fsdpbench::engine
