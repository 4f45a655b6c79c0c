#include "config/toml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/read_input.h"
#include "config/fields.h"

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

namespace fs = std::filesystem;

const char* noun(FileKind kind) {
  switch (kind) {
    case FileKind::run: return "run profile";
    case FileKind::sweep: return "sweep file";
    case FileKind::model: return "model file";
    case FileKind::cluster: return "cluster file";
    case FileKind::accuracy: return "file of published accuracy";
    case FileKind::acceptance: return "acceptance profile";
    case FileKind::calibration: break;
  }
  return "calibration";
}

std::string text_of_file(const std::string& path, FileKind wanted) {
  return read_input(path, kMostOfAProfile, fmt::format("expected a {} (TOML)", noun(wanted)));
}

/// Results and traces are the files that lie where profiles are looked for.
void check_is_toml(const std::string& path, std::string_view text, FileKind wanted) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    const std::string folder = fs::path(path).parent_path().string();
    const bool result = fs::path(path).filename() == "result.json" && wanted == FileKind::run;
    throw ConfigError(fmt::format("{}: is JSON, and a {} (TOML) is expected{}.", path, noun(wanted),
                                  result ? fmt::format("; for the configuration of this result name its folder, {}",
                                                       folder.empty() ? "." : folder)
                                         : ""));
  }
  if (text.starts_with("\x1F\x8B")) {
    throw ConfigError(fmt::format("{}: is compressed data, and a {} (TOML) is expected.", path, noun(wanted)));
  }
}

/// Behind the TOML string that begins at `begin`, whether it is closed or not.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const std::string three(3, quote);
  const bool many_lines = text.substr(begin, 3) == three;
  for (std::size_t i = begin + (many_lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (many_lines ? text.substr(i, 3) == three : text[i] == quote) {
      return i + (many_lines ? 3 : 1);
    } else if (text[i] == '\n' && !many_lines) {
      return i;
    }
  }
  return text.size();
}

bool is_table_of_profiles(std::string_view name) {
  return std::ranges::any_of(fields(), [&](const Field& field) { return field.table == name; });
}

/// Plain cases only: a file that might be of the wanted kind and has mistakes shall hear about the mistakes.
FileKind kind_of(const toml::table& file, FileKind wanted) {
  if (wanted != FileKind::cluster && file["gpu"].is_table() && file["intra"].is_table()) return FileKind::cluster;
  if (wanted != FileKind::sweep && (file["axes"].is_table() || file["base"].is_string())) return FileKind::sweep;
  const bool of_profile = std::ranges::any_of(file, [](const auto& item) {
    return item.second.is_table() && is_table_of_profiles(std::string_view(item.first));
  });
  if (wanted == FileKind::cluster && of_profile) return FileKind::run;
  if (wanted == FileKind::sweep && of_profile && !file.contains("axes") && !file.contains("base")) return FileKind::run;
  return wanted;
}

void check_kind(const std::string& path, const toml::table& file, FileKind wanted) {
  const FileKind kind = kind_of(file, wanted);
  if (kind == wanted) return;
  std::string instead;
  if (kind == FileKind::sweep) instead = fmt::format("`fsdpbench sweep {}` runs it", path);
  if (kind == FileKind::run) instead = fmt::format("`fsdpbench run {}` runs it", path);
  if (kind == FileKind::cluster) instead = "it says what a simulation runs on";
  throw ConfigError(fmt::format("{}: is a {}, and a {} is expected; {}.", path, noun(kind), noun(wanted), instead));
}

}  // namespace

bool StrictTable::has(std::string_view key) {
  known_.emplace_back(key);
  return table_.contains(key);
}

const toml::node* StrictTable::take(std::string_view key) {
  if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
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
    const auto of_run = std::ranges::find_if(
        fields(), [&](const Field& field) { return field.table == key.str() || field.key == key.str(); });
    throw ConfigError(fmt::format("{}: there is no key '{}' in {}; valid: {}{}.", place_of(path_, node), key.str(),
                                  what_, fmt::join(known_, ", "),
                                  of_run == fields().end() ? "" : "; the profile of a run has " + of_run->name()));
  }
}

std::optional<TooDeep> too_deep(std::string_view text) {
  constexpr int kMostParts = 16, kMostBrackets = 32;
  int line = 1, brackets = 0, dots = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::size_t end = end_of_string(text, i);
      line += static_cast<int>(std::ranges::count(text.substr(i, end - i), '\n'));
      i = end - 1;
    } else if (c == '.') {
      if (++dots >= kMostParts) return TooDeep{line, fmt::format("a key has more than {} parts", kMostParts)};
    } else if (c == '\n' || c == ',' || c == '=' || c == '[' || c == ']' || c == '{' || c == '}') {
      dots = 0;
      line += c == '\n' ? 1 : 0;
      brackets += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
      if (brackets > kMostBrackets) {
        return TooDeep{line, fmt::format("arrays or tables are nested more than {} deep", kMostBrackets)};
      }
    }
  }
  return std::nullopt;
}

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

toml::table parse_toml(const std::string& path, FileKind wanted) {
  const std::string text = text_of_file(path, wanted);
  check_is_toml(path, text, wanted);
  if (const auto deep = too_deep(text)) {
    throw ConfigError(fmt::format("{}:{}: {}; no {} needs that.", path, deep->line, deep->what, noun(wanted)));
  }
  try {
    toml::table file = toml::parse(text, path);
    check_kind(path, file, wanted);
    return file;
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    std::istringstream lines(text);
    std::string line;
    for (toml::source_index i = 0; i < at.line; ++i) std::getline(lines, line);
    constexpr std::size_t kShown = 60;
    throw ConfigError(fmt::format("{}:{}:{}: not valid TOML: {}: {}", path, at.line, at.column, error.description(),
                                  line.substr(0, kShown)));
  }
}

}  // namespace fsdpbench::config
