#pragma once

#include <poll.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
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

// [Note: who is let in]
// Who says the job's secret, a text that nothing prints and no result stores; without one, on one host, who is of this
// user. A caller says it with its purpose and all else in its hello, and the door compares it in a time that tells
// nothing. Until then the caller is a guest: it has kGuestSeconds and kMostGuestBytes, and of kMostGuests the one that
// has been there longest makes room. So a stranger costs no more than its own connection. Nothing is encrypted or
// signed: a network that others can read or change is not safe for this (docs/launch.md).
constexpr double kGuestSeconds = 5;
constexpr std::size_t kMostGuests = 128;

/// A listening socket that lets in who has `secret` and came for the same `purpose`. An empty secret is that of this
/// user's processes on this host.
class Door {
 public:
  struct Arrival {
    Socket socket;
    std::string said;  ///< when it knocked
  };

  Door(Socket listener, std::string secret, std::string purpose)
      : listener_(std::move(listener)), secret_(std::move(secret)), purpose_(std::move(purpose)) {}
  /// Those who have shown that they belong here. Waits a moment until there is news of somebody, or on `others`.
  std::vector<Arrival> let_in(std::vector<pollfd> others = {});
  /// "", or "; it has turned away a process at 10.0.0.1 that does not have this job's secret and 2 more", each counted
  /// once however often it came.
  std::string strangers() const;

 private:
  struct Guest {
    Socket socket;
    Deadline until;
    FrameReader reader;
  };

  bool settled(Guest& guest, std::vector<Arrival>& arrivals);
  bool turn_away(Guest& guest, const std::string& why);

  Socket listener_;
  const std::string secret_;
  const std::string purpose_;
  std::list<Guest> guests_;  ///< the longest here first
  std::string last_stranger_;
  std::set<std::string> strangers_;  ///< each once, however often it tries
};

/// Knocks at such a door and says `text`. An empty socket and the reason if it is not let in, or `stopped` says so.
Socket knock(const std::string& host, int port, const std::string& secret, const std::string& purpose,
             const std::string& text, Deadline deadline, std::string& error, const std::function<bool()>& stopped = {});

/// Introduction of a process that joins.
struct Introduction {
  std::string job;      ///< empty: not known
  std::string version;  ///< of the program
  int rank = 0;
  int ranks = 1;
  std::string host;
  long pid = 0;
};

/// One process of the job.
struct Member {
  std::string host;
  long pid = 0;
  std::string address;  ///< numeric, as rank 0 sees it; empty: it is on rank 0's host
};
/// "rank 2 (host node7, pid 4711)".
std::string describe(int rank, const Member& member);

/// A control connection. Bytes may have been read beyond the handshake.
struct ControlLink {
  Socket socket;
  FrameReader reader;
};

/// The outcome of joining, the same on all ranks except for the links.
struct Joined {
  std::vector<Member> members;     ///< by rank
  std::string token;               ///< a secret of this start of the job alone
  std::vector<ControlLink> links;  ///< at rank 0 by rank, the first without a socket; elsewhere one, to rank 0
  std::string door;                ///< for people, at rank 0: where it listened
};

/// The process at the other end has the secret of this job and does not take this one in; trying again would not help.
class Refused : public BackendError {
 public:
  using BackendError::BackendError;
};

/// Rank 0: takes in all others that have `secret`. Throws BackendError that names the missing ranks when `deadline` has
/// passed, and at once if two processes of the job contradict each other; whoever has joined by then is told the same.
Joined take_in_all(Socket listener, const Introduction& self, const std::string& secret, Deadline deadline);

/// Another rank: knocks at rank 0's door and waits to be taken in. Nothing, with the reason, if there is no rank 0 that
/// has `secret` at `host`:`port` so far. Throws Refused if there is one, and the job cannot come to be.
std::optional<Joined> ask_to_join(const std::string& host, int port, const Introduction& self,
                                  const std::string& secret, Deadline deadline, std::string& reason);

}  // namespace fsdpbench::launch
