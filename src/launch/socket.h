#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace fsdpbench::launch {

using Deadline = std::chrono::steady_clock::time_point;
/// That many seconds from now.
Deadline deadline_in(double seconds);

/// Time after which a wait for bytes looks whether it was told to stop.
inline constexpr int kPollMs = 10;

/// Owns one file descriptor. All sockets of this folder are non-blocking and are closed on exec.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Nothing if it is closed.
  void close();
  /// Says that nothing more will be sent; what was sent still arrives.
  void end_sending();

  /// Moved bytes; `closed` if the other side is gone, with the reason in `error` (empty: it closed in good order).
  /// No bytes and not closed: it would have blocked.
  struct Moved {
    std::size_t bytes = 0;
    bool closed = false;
    std::string error;
  };
  /// `more`: further bytes follow at once, so that small pieces travel together.
  Moved send(const void* data, std::size_t size, bool more = false);
  /// Up to `size` bytes.
  Moved receive(void* data, std::size_t size);

  /// The port of a connected or listening socket.
  int local_port() const;
  std::string local_address() const;  ///< numeric
  std::string peer_address() const;   ///< numeric

 private:
  int fd_ = -1;
};

/// Listens at `address` (the first of those that a name stands for and this host has; empty: all interfaces) and `port`
/// (0: any free one). Returns an empty socket and the reason if that is not possible.
Socket listen_at(const std::string& address, int port, std::string& error);
/// The next caller, or an empty socket if there is none now.
Socket accept_from(const Socket& listener);
/// Connects to a host name or numeric address; an empty socket and the reason if that fails or `stopped` says so.
Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& error,
                  const std::function<bool()>& stopped = {});

}  // namespace fsdpbench::launch
