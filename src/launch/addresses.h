#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace fsdpbench::launch {

/// One IPv4 or IPv6 address with a port.
class Address {
 public:
  Address(const sockaddr* address, socklen_t size);
  /// All that a host name or numeric address stands for, in the resolver's order; empty if it is unknown.
  static std::vector<Address> find(const std::string& host, int port);
  /// The addresses of the two ends of a socket.
  static Address local(int fd);
  static Address peer(int fd);

  int family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  /// The port of an address that has one, in host byte order.
  int port() const;
  /// Numeric; an IPv4 address that came through an IPv6 socket is written as IPv4.
  std::string text() const;

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// The numeric addresses a name stands for; empty if it is unknown.
std::vector<std::string> resolve(const std::string& host);
inline constexpr const char* kLoopback = "127.0.0.1";
/// "127.0.0.1", "::1" and the like.
bool is_loopback(const std::string& numeric_address);
/// This host's addresses that others may reach: all interfaces that are up, without loopback.
std::vector<std::string> interface_addresses();
/// "host:port", with brackets around IPv6 addresses.
std::string endpoint(const std::string& host, int port);

}  // namespace fsdpbench::launch
