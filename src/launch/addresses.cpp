#include "launch/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>

#include "base/error.h"

namespace fsdpbench::launch {
namespace {

constexpr std::string_view kMappedIpv4 = "::ffff:";

}  // namespace

Address::Address(const sockaddr* address, socklen_t size) : size_(size) { std::memcpy(&storage_, address, size); }

std::vector<Address> Address::find(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<Address> found;
  for (; list != nullptr; list = list->ai_next) found.emplace_back(list->ai_addr, list->ai_addrlen);
  return found;
}

Address Address::local(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  (void)getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  return {reinterpret_cast<const sockaddr*>(&storage), size};
}

Address Address::peer(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  (void)getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  return {reinterpret_cast<const sockaddr*>(&storage), size};
}

int Address::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

std::string Address::text() const {
  char host[NI_MAXHOST] = "";
  if (getnameinfo(get(), size_, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  const std::string_view text = host;
  return std::string(text.starts_with(kMappedIpv4) ? text.substr(kMappedIpv4.size()) : text);
}

std::vector<std::string> resolve(const std::string& host) {
  std::vector<std::string> texts;
  for (const Address& address : Address::find(host, 0)) texts.push_back(address.text());
  return texts;
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address == "::1" || numeric_address.starts_with("127.");
}

bool peer_is_this_user(int fd) {
  const Address own = Address::local(fd), peer = Address::peer(fd);
  const auto listed = [](const Address& address) {
    return fmt::format("{:08X}:{:04X}", reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr,
                       address.port());
  };
  if (own.family() != AF_INET || peer.family() != AF_INET) return false;
  std::ifstream connections("/proc/net/tcp");
  for (std::string line; std::getline(connections, line);) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits;
    uid_t user = 0;
    if (!(words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user)) continue;
    if (local == listed(peer) && remote == listed(own)) return user == geteuid();
  }
  return false;
}

std::string endpoint(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof name) != 0) return "unknown";
  name[HOST_NAME_MAX] = '\0';
  return name;
}

std::string node_name() {
  const Environment environment = process_environment();
  const Variables variables(environment);
  const std::string known = variables.first_set({"SLURMD_NODENAME", "NODE_NAME"});
  return known.empty() ? host_name() : variables.text(known);
}

std::string clock_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) return {};
  std::error_code none;  // kernels before 5.6 have no time namespaces
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

std::string random_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

std::string Variables::text(const std::string& name) const {
  const char* value = environment_(name.c_str());
  return value == nullptr ? "" : value;
}

int Variables::number(const std::string& name, int least, int most) const {
  const std::string value = text(name);
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < least || number > most) {
    throw ConfigError(fmt::format("{}={} in the environment is not an integer from {} to {}", name,
                                  value.empty() ? "(not set)" : value, least, most));
  }
  return number;
}

int Variables::number(const std::string& name, int least, int most, int otherwise) const {
  return has(name) ? number(name, least, most) : otherwise;
}

std::string Variables::host(const std::string& name) const {
  const std::string value = text(name);
  const auto all = [&](const auto& fits) { return !value.empty() && std::ranges::all_of(value, fits); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto in_a_name = [&](char c) {  // underscores are no part of names by the book, and of many in clusters
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
  };
  constexpr std::size_t kLongestName = 253;
  in6_addr address{};
  bool valid = all(in_a_name) && value.size() <= kLongestName && value.front() != '-' && value.front() != '.';
  if (all([&](char c) { return is_digit(c) || c == '.'; })) valid = inet_pton(AF_INET, value.c_str(), &address) == 1;
  if (value.find(':') != std::string::npos) {
    valid = inet_pton(AF_INET6, value.substr(0, value.find('%')).c_str(), &address) == 1;
  }
  if (!valid) {
    throw ConfigError(
        fmt::format("{}='{}' in the environment is neither the name nor the address of a host", name, value));
  }
  return value;
}

std::string Variables::first_set(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (has(name)) return name;
  }
  return {};
}

}  // namespace fsdpbench::launch
