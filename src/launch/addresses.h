#pragma once

#include <sys/socket.h>
#include <functional>
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
/// Whether the other end of `fd`, an IPv4 connection within this host, is of a process of this user, as the kernel's
/// list of connections says; false if that says nothing.
bool peer_is_this_user(int fd);
/// "host:port", with brackets around IPv6 addresses.
std::string endpoint(const std::string& host, int port);

/// This host's name, for people.
std::string host_name();
/// Name of this host in lists of nodes: as Slurm (SLURMD_NODENAME) or Kubernetes (NODE_NAME) knows it, else by
/// its own name.
std::string node_name();
/// Equal for two processes exactly if base/clock.h tells them the same time: the running kernel and its time
/// namespace. Empty if that cannot be known.
std::string clock_identity();
/// 32 random hex digits.
std::string random_token();

/// Reads one environment variable; null if it is not set.
using Environment = std::function<const char*(const char* name)>;
/// The process's own.
Environment process_environment();

inline constexpr int kMostPort = 65535;
/// Ports below those that Linux gives to outgoing connections.
inline constexpr int kFirstPort = 20000;
inline constexpr int kPorts = 12000;

/// The variables a launcher sets, read with messages that name them.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  /// Set and not empty.
  bool has(const std::string& name) const { return !text(name).empty(); }
  /// Empty if not set.
  std::string text(const std::string& name) const;
  /// Throws ConfigError if it is not set or no integer between `least` and `most`.
  int number(const std::string& name, int least, int most) const;
  /// `otherwise` if it is not set.
  int number(const std::string& name, int least, int most, int otherwise) const;
  /// A host by name or address. Throws ConfigError if it cannot be one; whether there is such a host is not asked.
  std::string host(const std::string& name) const;
  /// The first of `names` that is set; empty if none is.
  std::string first_set(const std::vector<std::string>& names) const;

 private:
  const Environment& environment_;
};

}  // namespace fsdpbench::launch
