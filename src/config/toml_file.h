#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>

#include "config/find_file.h"
#include "config/spelling.h"

/// What reading profiles and reading sweep files share.
namespace fsdpbench::config {

/// The TOML file at `path`. Throws ConfigError if it cannot be read, is not TOML, or is plainly of another kind than
/// `wanted`: then the message says what it is and which command takes it.
toml::table parse_toml(const std::string& path, FileKind wanted);

/// The value of a TOML node; nothing for arrays, tables and dates, which no key takes.
std::optional<Value> scalar(const toml::node& node);

/// Where a node stands: "profile.toml:12".
std::string place_of(const std::string& path, const toml::node& node);

}  // namespace fsdpbench::config
