#include "config/strict_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

std::optional<double> number_in(const toml::node& node, double low, double high) {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  return value && *value >= low && *value <= high ? value : std::nullopt;
}

/// Absent if it is no list of such numbers.
std::optional<std::vector<double>> numbers_in(const toml::node& node, double low, double high) {
  std::vector<double> values;
  if (!node.is_array()) return std::nullopt;
  for (const toml::node& item : *node.as_array()) {
    const std::optional<double> value = number_in(item, low, high);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

}  // namespace

const toml::node* StrictTable::take(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

void StrictTable::fail(std::string_view key, const toml::node* node, const std::string& valid) const {
  if (node == nullptr) {
    throw ConfigError(fmt::format("{}: '{}' is missing; expected {}.", place_of(path_, table_), key, valid));
  }
  throw ConfigError(
      fmt::format("{}: the value of '{}' is not valid; expected {}.", place_of(path_, *node), key, valid));
}

double StrictTable::number(std::string_view key, double low, double high) {
  const toml::node* node = take(key);
  const std::optional<double> value = node != nullptr ? number_in(*node, low, high) : std::nullopt;
  if (!value) fail(key, node, fmt::format("a number from {} to {}", low, high));
  return *value;
}

int StrictTable::whole(std::string_view key, int low, int high) {
  const toml::node* node = take(key);
  std::optional<std::int64_t> value;
  if (node != nullptr && node->is_integer()) value = node->value<std::int64_t>();
  if (!value || *value < low || *value > high) fail(key, node, fmt::format("an integer from {} to {}", low, high));
  return static_cast<int>(*value);
}

void StrictTable::require_version(int expected, std::string_view file, std::string_view remedy) {
  const int version = whole("version", 0, 1'000'000);
  if (version != expected) {
    throw ConfigError(fmt::format("{}: this {} has version {}, and this program reads version {}; {}.", path_, file,
                                  version, expected, remedy));
  }
}

std::string StrictTable::text(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr || !node->is_string()) fail(key, node, "a string");
  return *node->value<std::string>();
}

std::vector<double> StrictTable::numbers(std::string_view key, double low, double high) {
  const toml::node* node = take(key);
  std::optional<std::vector<double>> values;
  if (node != nullptr) values = numbers_in(*node, low, high);
  if (!values || values->empty()) fail(key, node, fmt::format("a list of numbers from {} to {}", low, high));
  return std::move(*values);
}

std::vector<std::string> StrictTable::texts(std::string_view key) {
  const toml::node* node = take(key);
  std::vector<std::string> values;
  if (node != nullptr && node->is_array()) {
    for (const toml::node& item : *node->as_array()) {
      if (!item.is_string()) fail(key, node, "a list of strings");
      values.push_back(*item.value<std::string>());
    }
  }
  if (values.empty()) fail(key, node, "a list of strings");
  return values;
}

std::vector<std::vector<double>> StrictTable::rows(std::string_view key, std::size_t columns, double low, double high) {
  const toml::node* node = take(key);
  const std::string valid = fmt::format("lists of {} numbers from {} to {}", columns, low, high);
  std::vector<std::vector<double>> all;
  if (node != nullptr && node->is_array()) {
    for (const toml::node& item : *node->as_array()) {
      std::optional<std::vector<double>> row = numbers_in(item, low, high);
      if (!row || row->size() != columns) fail(key, node, valid);
      all.push_back(std::move(*row));
    }
  }
  if (all.empty()) fail(key, node, valid);
  return all;
}

const toml::table& StrictTable::table(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr || !node->is_table()) fail(key, node, "a table");
  return *node->as_table();
}

std::vector<const toml::table*> StrictTable::tables(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr || !node->is_array_of_tables() || node->as_array()->empty()) fail(key, node, "tables");
  std::vector<const toml::table*> all;
  for (const toml::node& item : *node->as_array()) all.push_back(item.as_table());
  return all;
}

void StrictTable::finish() const {
  for (const auto& [key, node] : table_) {
    if (std::ranges::find(known_, key.str()) != known_.end()) continue;
    throw ConfigError(fmt::format("{}: there is no key '{}' in {}.", place_of(path_, node), key.str(), what_));
  }
}

}  // namespace fsdpbench::config
