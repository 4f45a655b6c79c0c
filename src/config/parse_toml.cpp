#include "config/parse_toml.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"

namespace fsdpbench::config {
namespace {

std::string text_of_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw ConfigError(fmt::format("{}: there is no such file.", path));
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(fmt::format("{}: is a folder; a profile (a .toml file) is expected.", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be opened for reading.", path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::optional<Value> scalar(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return Value(v->get());
  if (const auto* v = node.as_integer()) return Value(v->get());
  if (const auto* v = node.as_floating_point()) return Value(v->get());
  if (const auto* v = node.as_string()) return Value(v->get());
  return std::nullopt;
}

std::string place_of(const std::string& path, const toml::node& node) {
  return fmt::format("{}:{}", path, node.source().begin.line);
}

toml::table parse_toml(const std::string& path) {
  try {
    return toml::parse(text_of_file(path), path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}:{}: not valid TOML: {}", path, error.source().begin.line,
                                  error.source().begin.column, error.description()));
  }
}

}  // namespace fsdpbench::config
