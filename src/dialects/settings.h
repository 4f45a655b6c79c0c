#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/spelling.h"

namespace fsdpbench::dialects {

enum class SettingsFormat : std::uint8_t { json, toml, yaml, arguments };

/// A file of another system, flat: "zero_optimization.stage" → 3, "optimizer.params.betas.0" → 0.9. An argument is
/// called without its dashes, and is true where it has no value.
struct Settings {
  SettingsFormat format = SettingsFormat::json;
  std::map<std::string, config::Value> values;
  std::map<std::string, std::vector<std::string>> more_words;  ///< arguments: those behind the value

  bool has(std::string_view name) const { return values.contains(std::string(name)); }
  /// Whether some name begins so.
  bool has_table(std::string_view prefix) const;
};

/// By what the text looks like: JSON, TOML, YAML's mappings of mappings, or arguments of a command line (comments after
/// # are left out). Throws ConfigError that names `path`.
Settings parse_settings(const std::string& text, const std::string& path);

}  // namespace fsdpbench::dialects
