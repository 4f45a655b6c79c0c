#pragma once

#include <string>
#include <vector>

namespace fsdpbench::fuzz {

/// A parser under test. The driver (driver.cpp) feeds it damaged versions of its seeds.
struct Target {
  std::string name;
  std::vector<std::string> seeds;       ///< files of the source tree, relative to its root
  std::string file;                     ///< name under which the damaged text is written; parsers read files
  std::vector<std::string> texts = {};  ///< further seeds, made by the target
};

/// Defined by each target.
Target target();
/// Parses the file at `path`. It may throw fsdpbench::Error, the message for the user; anything else is a finding.
void parse(const std::string& path);

}  // namespace fsdpbench::fuzz
