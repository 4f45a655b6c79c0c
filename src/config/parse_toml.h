#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>

#include "config/value.h"

namespace fsdpbench::config {

/// A TOML file. Throws ConfigError if it cannot be read or is not TOML.
toml::table parse_toml(const std::string& path);

/// Nothing for arrays, tables, dates.
std::optional<Value> scalar(const toml::node& node);

/// "profile.toml:12".
std::string place_of(const std::string& path, const toml::node& node);

}  // namespace fsdpbench::config
