#include "config/words/system_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "config/words/embedded_systems.h"

namespace fsdpbench::dialects {

std::span<const SystemFile> system_files() {
  static const std::vector<SystemFile> kFiles = [] {
    std::vector<SystemFile> files;
    for (const auto& [name, text] : kEmbeddedSystems) files.push_back(read_system_file(name, text));
    return files;
  }();
  return kFiles;
}

SystemFile read_system_file(std::string_view name, std::string_view text) {
  std::string path = fmt::format("profiles/systems/{}.toml", name);
  try {
    return {std::string(name), path, toml::parse(text, path)};
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}: {}.", path, error.source().begin.line, error.description()));
  }
}

void refuse(const SystemFile& file, const toml::node& node, std::string_view why) {
  throw ConfigError(fmt::format("{}:{}: {}.", file.path, node.source().begin.line, why));
}

std::vector<std::pair<std::string_view, const toml::node*>> in_order(const toml::table& table) {
  std::vector<std::pair<std::string_view, const toml::node*>> entries;
  for (const auto& [key, node] : table) entries.emplace_back(key.str(), &node);
  std::ranges::sort(entries, {}, [](const auto& entry) {
    const toml::source_position at = entry.second->source().begin;
    return std::pair(at.line, at.column);
  });
  return entries;
}

const std::string& text_of(const SystemFile& file, const toml::node& node) {
  if (!node.is_string()) refuse(file, node, "expected a text");
  return node.as_string()->get();
}

const toml::table& table_of(const SystemFile& file, const toml::node& node) {
  if (!node.is_table()) refuse(file, node, "expected a table");
  return *node.as_table();
}

void read_table(const SystemFile& file, const toml::node& table, std::initializer_list<Take> known) {
  for (const auto& [key, node] : in_order(table_of(file, table))) {
    const auto take = std::ranges::find(known, key, &Take::first);
    if (take == known.end()) refuse(file, *node, fmt::format("there is no '{}' here", key));
    if (take->second) take->second(*node);
  }
}

}  // namespace fsdpbench::dialects
