#include "config/toml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/read_input.h"
#include "config/fields.h"

namespace fsdpbench::config {
namespace {

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
    throw ConfigError(fmt::format("{}:{}:{}: not valid TOML: {}", path, error.source().begin.line,
                                  error.source().begin.column, error.description()));
  }
}

}  // namespace fsdpbench::config
