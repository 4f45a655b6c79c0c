#include "launch/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

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

std::vector<std::string> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<std::string> texts;
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr == nullptr || (list->ifa_flags & IFF_UP) == 0 || (list->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = list->ifa_addr->sa_family;
    if (family == AF_INET) texts.push_back(Address(list->ifa_addr, sizeof(sockaddr_in)).text());
    if (family == AF_INET6) texts.push_back(Address(list->ifa_addr, sizeof(sockaddr_in6)).text());
  }
  std::erase_if(texts, [](const std::string& text) { return text.starts_with("fe80:"); });  // good on one link only
  return texts;
}

std::string endpoint(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

}  // namespace fsdpbench::launch
