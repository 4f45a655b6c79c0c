#include "config/value.h"

#include <fmt/format.h>

#include <string_view>

namespace fsdpbench::config {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Shortest text that reads back as the same double, and as a float rather than an integer.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string to_toml(const Value& value) {
  if (const bool* v = std::get_if<bool>(&value)) return *v ? "true" : "false";
  if (const auto* v = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *v);
  if (const double* v = std::get_if<double>(&value)) return number(*v);
  return quoted(std::get<std::string>(value));
}

}  // namespace fsdpbench::config
