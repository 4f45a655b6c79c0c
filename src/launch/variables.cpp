#include "launch/variables.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace fsdpbench::launch {

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

std::string Variables::first_set(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (has(name)) return name;
  }
  return {};
}

}  // namespace fsdpbench::launch
