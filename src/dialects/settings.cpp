#include "dialects/settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/toml_file.h"

namespace fsdpbench::dialects {
namespace {

using config::Value;
using nlohmann::json;

constexpr int kDeepest = 16;

std::string joined(const std::string& folder, std::string_view name) {
  return folder.empty() ? std::string(name) : fmt::format("{}.{}", folder, name);
}

void flatten_json(const json& node, const std::string& name, int depth, Settings& found) {
  if (depth > kDeepest) throw ConfigError(fmt::format("{}: nested more than {} deep.", name, kDeepest));
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) flatten_json(value, joined(name, key), depth + 1, found);
  } else if (node.is_array()) {
    for (std::size_t i = 0; i < node.size(); ++i)
      flatten_json(node[i], joined(name, std::to_string(i)), depth + 1, found);
  } else if (node.is_boolean()) {
    found.values[name] = node.get<bool>();
  } else if (node.is_number_integer()) {
    found.values[name] = node.get<std::int64_t>();
  } else if (node.is_number()) {
    found.values[name] = node.get<double>();
  } else if (node.is_string()) {
    found.values[name] = node.get<std::string>();
  }  // null: not set
}

void flatten_toml(const toml::node& node, const std::string& name, Settings& found) {
  if (const toml::table* table = node.as_table()) {
    for (const auto& [key, value] : *table) flatten_toml(value, joined(name, key.str()), found);
  } else if (const toml::array* array = node.as_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) flatten_toml((*array)[i], joined(name, std::to_string(i)), found);
  } else if (const std::optional<Value> value = config::scalar(node)) {
    found.values[name] = *value;
  }
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Without a comment, which begins at the start or after a space, outside of quotes.
std::string_view uncommented(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '\'' || line[i] == '"') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

/// A word of YAML or of a command line.
Value scalar_of(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front())
    return std::string(text.substr(1, text.size() - 2));
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  const char* const end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto read = std::from_chars(text.data(), end, whole); read.ec == std::errc() && read.ptr == end)
    return whole;
  double number = 0;
  if (const auto read = std::from_chars(text.data(), end, number); read.ec == std::errc() && read.ptr == end)
    return number;
  return std::string(text);
}

/// Mappings of mappings and scalars, which is all that these files have; lines of lists are named by their place.
Settings read_yaml(const std::string& text, const std::string& path) {
  Settings found{.format = SettingsFormat::yaml, .values = {}, .more_words = {}};
  std::vector<std::pair<std::size_t, std::string>> folders;  // indentation and name, outermost first
  std::istringstream in(text);
  int number = 0;
  std::map<std::string, int> items;
  for (std::string raw; std::getline(in, raw);) {
    ++number;
    const std::string_view line = uncommented(raw);
    const std::string_view content = trimmed(line);
    if (content.empty() || content == "---" || content == "...") continue;
    const std::size_t indentation = line.find_first_not_of(' ');
    const bool is_item = content.starts_with("- ");
    while (!folders.empty() && (is_item ? folders.back().first > indentation : folders.back().first >= indentation))
      folders.pop_back();
    const std::string folder = folders.empty() ? "" : folders.back().second;
    if (is_item) {
      found.values[joined(folder, std::to_string(items[folder]++))] = scalar_of(trimmed(content.substr(2)));
      continue;
    }
    const std::size_t colon = content.find(':');
    if (colon == std::string_view::npos || (colon + 1 < content.size() && content[colon + 1] != ' '))
      throw ConfigError(fmt::format("{}:{}: \"{}\" is no \"key: value\".", path, number, content));
    const std::string name = joined(folder, trimmed(content.substr(0, colon)));
    const std::string_view value = trimmed(content.substr(colon + 1));
    if (!value.empty() && value != "{}" && value != "null" && value != "~") {
      found.values[name] = scalar_of(value);
    } else if (value.empty()) {
      if (folders.size() > kDeepest) throw ConfigError(fmt::format("{}:{}: nested too deep.", path, number));
      folders.emplace_back(indentation, name);
    }
  }
  return found;
}

/// "--a 1 --b --c=2 d:e", over several lines, in brackets of a shell's array or not.
Settings read_arguments(const std::string& text) {
  Settings found{.format = SettingsFormat::arguments, .values = {}, .more_words = {}};
  std::istringstream in(text);
  std::string last, argument;
  for (std::string raw; std::getline(in, raw);) {
    std::istringstream words{std::string(uncommented(raw))};
    for (std::string word; words >> word;) {
      if (word == "\\" || word == "(" || word == ")" || word.ends_with("=(")) continue;
      if (!word.starts_with("--")) {
        const std::size_t colon = word.find(':');
        if (!last.empty()) {
          found.values[last] = scalar_of(word);
        } else if (colon != std::string::npos) {
          found.values[word.substr(0, colon)] = word.substr(colon + 1);
        } else if (!argument.empty()) {
          found.more_words[argument].push_back(word);
        }
        last.clear();
        continue;
      }
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
      found.values[name] = equals == std::string::npos ? Value(true) : scalar_of(word.substr(equals + 1));
      last = equals == std::string::npos ? name : "";
      argument = last;
    }
  }
  return found;
}

SettingsFormat format_of(const std::string& text) {
  std::istringstream in(text);
  for (std::string raw; std::getline(in, raw);) {
    const std::string_view line = trimmed(uncommented(raw));
    if (line.empty() || line == "---") continue;
    if (line.starts_with("{")) return SettingsFormat::json;
    if (line.starts_with("--") || line.ends_with("=(") || line.find(" --") != std::string_view::npos)
      return SettingsFormat::arguments;
    if (line.starts_with("[") || line.find(" = ") != std::string_view::npos) return SettingsFormat::toml;
    return SettingsFormat::yaml;
  }
  return SettingsFormat::yaml;
}

}  // namespace

bool Settings::has_table(std::string_view prefix) const {
  const auto first = values.lower_bound(std::string(prefix));
  return first != values.end() && first->first.starts_with(prefix);
}

Settings parse_settings(const std::string& text, const std::string& path) {
  Settings found;
  switch (format_of(text)) {
    case SettingsFormat::json: try { flatten_json(json::parse(text), "", 0, found);
      } catch (const json::exception& error) {
        throw ConfigError(fmt::format("{}: no JSON: {}", path, error.what()));
      }
      return found;
    case SettingsFormat::toml: {
      if (const auto deep = config::too_deep(text))
        throw ConfigError(fmt::format("{}:{}: {}.", path, deep->line, deep->what));
      found.format = SettingsFormat::toml;
      try {
        flatten_toml(toml::parse(text, path), "", found);
      } catch (const toml::parse_error& error) {
        throw ConfigError(
            fmt::format("{}:{}: no TOML: {}", path, error.source().begin.line, std::string(error.description())));
      }
      return found;
    }
    case SettingsFormat::arguments: return read_arguments(text);
    case SettingsFormat::yaml: break;
  }
  return read_yaml(text, path);
}

}  // namespace fsdpbench::dialects
