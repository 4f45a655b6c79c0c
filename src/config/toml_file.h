#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>

#include "config/find_file.h"
#include "config/spelling.h"

/// What reading profiles and reading sweep files share.
namespace fsdpbench::config {

/// TOML that is nested far beyond any use.
struct TooDeep {
  int line = 1;
  std::string what;  ///< "a key has more than 16 parts"
};

/// Whether `text` is: keys of more than 16 parts, or arrays and tables 32 deep. To be asked before toml++ reads it,
/// which reads them by recursion and overflows the stack. Looks at characters only, and takes any text.
std::optional<TooDeep> too_deep(std::string_view text);

/// The TOML file at `path`. Throws ConfigError if it cannot be read, is not TOML, or is plainly of another kind than
/// `wanted`: then the message says what it is and which command takes it.
toml::table parse_toml(const std::string& path, FileKind wanted);

/// The value of a TOML node; nothing for arrays, tables and dates, which no key takes.
std::optional<Value> scalar(const toml::node& node);

/// Where a node stands: "profile.toml:12".
std::string place_of(const std::string& path, const toml::node& node);

}  // namespace fsdpbench::config
