#include "launch/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace fsdpbench::launch {
namespace {

constexpr std::uint32_t kMagic = 0x46534442;
constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kMostChunksAtOnce = 64;  // one busy sender must not keep the others waiting

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint64_t topic_bytes = 0;
  std::uint64_t payload_bytes = 0;
};

template <typename T>
T read_as(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void append_bytes(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string encode(FrameKind kind, std::string_view topic, std::string_view payload) {
  if (topic.size() > kMostTopicBytes || payload.size() > kMostPayloadBytes) {
    throw BackendError(fmt::format("a control message has a topic of {} bytes (at most {}) and {} bytes (at most {})",
                                   topic.size(), kMostTopicBytes, payload.size(), kMostPayloadBytes));
  }
  std::string bytes;
  bytes.reserve(sizeof(Header) + topic.size() + payload.size());
  append_bytes(bytes, Header{kMagic, static_cast<std::uint32_t>(kind), topic.size(), payload.size()});
  bytes.append(topic).append(payload);
  return bytes;
}

Socket::Moved FrameReader::take(Socket& socket) {
  Socket::Moved all;
  // A guest's bytes beyond its one frame need not be read.
  const std::size_t most_chunks = most_payload_bytes_ == kMostPayloadBytes ? kMostChunksAtOnce : 1;
  for (std::size_t chunk = 0; chunk < most_chunks; ++chunk) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kChunk);
    Socket::Moved moved = socket.receive(buffer_.data() + before, kChunk);
    buffer_.resize(before + moved.bytes);
    all.bytes += moved.bytes;
    all.closed = moved.closed;
    all.error = std::move(moved.error);
    if (moved.bytes == 0) break;
  }
  return all;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view bytes = std::string_view(buffer_).substr(done_);
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  const auto header = read_as<Header>(bytes, 0);
  const bool known = header.kind >= static_cast<std::uint32_t>(FrameKind::hello) &&
                     header.kind <= static_cast<std::uint32_t>(FrameKind::goodbye);
  if (header.magic != kMagic || !known || header.topic_bytes > kMostTopicBytes ||
      header.payload_bytes > most_payload_bytes_) {
    throw BackendError("it does not speak fsdpbench's protocol");
  }
  const std::size_t size = sizeof(Header) + header.topic_bytes + header.payload_bytes;
  if (bytes.size() < size) return std::nullopt;
  Frame frame{static_cast<FrameKind>(header.kind), std::string(bytes.substr(sizeof(Header), header.topic_bytes)),
              std::string(bytes.substr(sizeof(Header) + header.topic_bytes, header.payload_bytes))};
  done_ += size;
  if (done_ == buffer_.size() || done_ > kChunk) {
    buffer_.erase(0, done_);
    done_ = 0;
  }
  return frame;
}

std::string pack(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    append_bytes(bytes, std::uint64_t{text.size()});
    bytes += text;
  }
  return bytes;
}

std::vector<std::string> unpack(std::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    constexpr std::size_t kHead = sizeof(std::uint64_t);
    if (bytes.size() < kHead || read_as<std::uint64_t>(bytes, 0) > bytes.size() - kHead) {
      throw BackendError("a control message is cut off");
    }
    const auto size = read_as<std::uint64_t>(bytes, 0);
    texts.emplace_back(bytes.substr(kHead, size));
    bytes.remove_prefix(kHead + size);
  }
  return texts;
}

}  // namespace fsdpbench::launch
