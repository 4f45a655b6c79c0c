#include "launch/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "launch/addresses.h"

namespace fsdpbench::launch {
namespace {

constexpr int kBacklog = 4096;

std::string reason(int error) { return std::generic_category().message(error); }

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

void switch_on(int fd, int level, int option) {
  const int on = 1;
  (void)setsockopt(fd, level, option, &on, sizeof on);
}

Socket connect_to_address(const Address& address, Deadline deadline, std::string& error,
                          const std::function<bool()>& stopped) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) {
    error = reason(errno);
    return {};
  }
  switch_on(socket.fd(), IPPROTO_TCP, TCP_NODELAY);
  if (::connect(socket.fd(), address.get(), address.size()) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) {
      error = reason(errno);
      return {};
    }
    pollfd wanted{socket.fd(), POLLOUT, 0};
    while (::poll(&wanted, 1, kPollMs) <= 0) {
      if (std::chrono::steady_clock::now() > deadline || (stopped && stopped())) {
        error = "no answer";
        return {};
      }
    }
    int failed = 0;
    socklen_t size = sizeof failed;
    (void)getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &failed, &size);
    if (failed != 0) {
      error = reason(failed);
      return {};
    }
  }
  // A port of this host's ephemeral range that nobody listens on may be connected to itself.
  if (socket.local_port() == address.port() && socket.local_address() == socket.peer_address()) {
    error = reason(ECONNREFUSED);
    return {};
  }
  return socket;
}

Socket listen_at_address(const Address& address, std::string& error) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) {
    error = reason(errno);
    return {};
  }
  switch_on(socket.fd(), SOL_SOCKET, SO_REUSEADDR);
  if (address.family() == AF_INET6) {
    const int off = 0;  // the address of all interfaces serves IPv4 as well
    (void)setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket.fd(), address.get(), address.size()) != 0 || ::listen(socket.fd(), kBacklog) != 0) {
    error = reason(errno);
    return {};
  }
  return socket;
}

}  // namespace

Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(seconds));
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Socket::end_sending() { (void)::shutdown(fd_, SHUT_WR); }

Socket::Moved Socket::send(const void* data, std::size_t size, bool more) {
  const ssize_t sent = ::send(fd_, data, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
  if (sent >= 0) return {static_cast<std::size_t>(sent), false, {}};
  if (would_block(errno)) return {};
  return {0, true, reason(errno)};
}

Socket::Moved Socket::receive(void* data, std::size_t size) {
  const ssize_t received = ::recv(fd_, data, size, 0);
  if (received > 0) return {static_cast<std::size_t>(received), false, {}};
  if (received == 0) return {0, size > 0, {}};
  if (would_block(errno)) return {};
  return {0, true, reason(errno)};
}

int Socket::local_port() const { return Address::local(fd_).port(); }
std::string Socket::local_address() const { return Address::local(fd_).text(); }
std::string Socket::peer_address() const { return Address::peer(fd_).text(); }

Socket listen_at(const std::string& address, int port, std::string& error) {
  if (!address.empty()) {
    error = "unknown address";
    for (const Address& one : Address::find(address, port)) {
      Socket socket = listen_at_address(one, error);
      if (socket || error == reason(EADDRINUSE)) return socket;
    }
    return {};
  }
  Socket socket = listen_at_address(Address::find("::", port).at(0), error);
  if (!socket && error != reason(EADDRINUSE)) socket = listen_at_address(Address::find("0.0.0.0", port).at(0), error);
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) switch_on(socket.fd(), IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& error,
                  const std::function<bool()>& stopped) {
  error = fmt::format("the name '{}' is unknown", host);
  for (const Address& address : Address::find(host, port)) {
    Socket socket = connect_to_address(address, deadline, error, stopped);
    if (socket) return socket;
  }
  return {};
}

}  // namespace fsdpbench::launch
