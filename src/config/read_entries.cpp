#include "config/read_entries.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "config/fields.h"
#include "config/parse_toml.h"

namespace fsdpbench::config {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_table_name(std::string_view name) {
  return std::ranges::any_of(fields(), [&](const Field& field) { return field.table == name; });
}

[[noreturn]] void throw_bad_top_level(const std::string& place, const std::string& name) {
  if (is_table_name(name)) {
    throw ConfigError(
        fmt::format("{}: '{}' is a table: write [{}] on a line of its own, its keys below.", place, name, name));
  }
  throw ConfigError(
      fmt::format("{}: unknown key '{}'; the nearest valid key is '{}'.", place, name, nearest_field(name)));
}

}  // namespace

std::vector<Entry> read_file(const std::string& path) {
  const toml::table file = parse_toml(path);
  std::vector<std::pair<toml::source_position, Entry>> found;
  for (const auto& [table_name, node] : file) {
    const std::string table(table_name.str());
    const toml::table* keys = node.as_table();
    if (keys == nullptr) throw_bad_top_level(place_of(path, node), table);
    if (!is_table_name(table)) {
      std::vector<std::string> tables;
      for (const Field& field : fields()) tables.push_back(field.table);
      throw ConfigError(fmt::format("{}: unknown table [{}]; the nearest valid one is [{}].", place_of(path, node),
                                    table, nearest(table, tables)));
    }
    for (const auto& [key, value] : *keys) {
      const std::string name = fmt::format("{}.{}", table, key.str());
      const std::optional<Value> read = scalar(value);
      // A name nobody knows is the more helpful complaint, so it comes first.
      const Field* field = find_field(name);
      if (!read && field != nullptr) {
        throw ConfigError(fmt::format("{}: {} is not valid as {}; expected {}.", place_of(path, value), name,
                                      value.is_table()   ? "a table"
                                      : value.is_array() ? "an array"
                                                         : "a date or time",
                                      field->valid));
      }
      found.emplace_back(value.source().begin, Entry{name, read.value_or(Value(false)), place_of(path, value), {}});
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& item) { return std::pair(item.first.line, item.first.column); });
  std::vector<Entry> entries;
  for (auto& [position, entry] : found) entries.push_back(std::move(entry));
  return entries;
}

Entry read_override(const std::string& text) {
  const auto equals = text.find('=');
  const std::string name(trim(text.substr(0, equals)));
  if (equals == std::string::npos || name.empty()) {
    throw ConfigError(fmt::format("--set {}: expected key=value, as in --set mesh.ranks=8.", text));
  }
  Entry entry{name, Value(false), fmt::format("--set {}", text),
              std::string(trim(std::string_view(text).substr(equals + 1)))};
  entry.value = entry.raw;
  try {
    const toml::table parsed = toml::parse(fmt::format("value = {}\n", entry.raw));
    if (parsed.size() == 1) entry.value = scalar(*parsed.get("value")).value_or(Value(entry.raw));
  } catch (const toml::parse_error&) {
    // A bare word: full_shard, bytes:64MiB, a path.
  }
  return entry;
}

}  // namespace fsdpbench::config
