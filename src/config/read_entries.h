#pragma once

#include <string>
#include <vector>

#include "config/value.h"

namespace fsdpbench::config {

/// `table.key = value` as the user wrote it, and where.
struct Entry {
  std::string name;  ///< "mesh.ranks"
  Value value;
  std::string place;  ///< "profile.toml:12" or "--set mesh.ranks=8"
  std::string raw;    ///< --set only: the value's text, for keys that want a string
};

/// All keys of a TOML file, in file order. Throws ConfigError: unreadable, not TOML, or not of the shape
/// [table] key = value.
std::vector<Entry> read_file(const std::string& path);

/// One `--set` argument. What is not a TOML value is taken as a string.
Entry read_override(const std::string& text);

}  // namespace fsdpbench::config
