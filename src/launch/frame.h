#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/socket.h"

namespace fsdpbench::launch {

enum class FrameKind : std::uint32_t { hello = 1, welcome, refusal, message, heartbeat, failure, goodbye };

/// Message on a control connection.
struct Frame {
  FrameKind kind = FrameKind::message;
  std::string topic;
  std::string payload;
};

constexpr std::size_t kMostTopicBytes = 1024;
constexpr std::size_t kMostPayloadBytes = std::size_t{1} << 30;
/// Most bytes that a peer may send before it has shown that it belongs to the job.
constexpr std::size_t kMostGuestBytes = std::size_t{16} << 10;

/// The bytes of a frame. Throws BackendError if topic or payload are longer than allowed.
std::string encode(FrameKind kind, std::string_view topic, std::string_view payload);

/// Cuts the bytes of one connection into frames. Memory grows with what has arrived, never with what is announced.
class FrameReader {
 public:
  FrameReader() = default;
  /// Longer payloads than `most_payload_bytes` are refused as soon as they are announced.
  explicit FrameReader(std::size_t most_payload_bytes) : most_payload_bytes_(most_payload_bytes) {}

  /// Takes what has arrived on `socket`, without waiting; says if the connection is closed.
  Socket::Moved take(Socket& socket);
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole frame. Throws BackendError if the bytes are no frame: then the other side is no fsdpbench.
  std::optional<Frame> next();

 private:
  std::size_t most_payload_bytes_ = kMostPayloadBytes;
  std::string buffer_;
  std::size_t done_ = 0;  ///< bytes of buffer_ that were handed out
};

/// Several texts as one, and back. unpack() throws BackendError if the bytes are not of pack().
std::string pack(const std::vector<std::string>& texts);
std::vector<std::string> unpack(std::string_view bytes);

}  // namespace fsdpbench::launch
