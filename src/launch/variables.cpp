#include "launch/variables.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace fsdpbench::launch {

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
