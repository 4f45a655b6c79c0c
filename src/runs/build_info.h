#pragma once

#include <string>

namespace fsdpbench::app {

/// Sources and settings that this program was built from. Goes into every result file.
struct BuildInfo {
  std::string version;       ///< "0.1.0"
  std::string git_revision;  ///< 12 hex digits, or "unknown" outside a git checkout
  bool git_dirty = false;    ///< tracked files differed from that revision
  std::string build_type;    ///< "Release"
  std::string sanitize;      ///< "address,undefined", "thread" or empty
  std::string compiler;      ///< "GNU 12.2.0"

  friend bool operator==(const BuildInfo&, const BuildInfo&) = default;
};

/// Build of this program. Lives as long as the program.
const BuildInfo& build_info();

/// "fsdpbench 0.1.0 (abc123, Release, GNU 12.2.0)".
std::string version_line();

}  // namespace fsdpbench::app
