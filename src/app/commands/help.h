#pragma once

#include <string>

namespace fsdpbench::app {

/// Text of `fsdpbench --help`: all commands, group by group.
std::string program_help();

/// Help text of a command ("run", "trace diff") or of the commands of one first word ("trace"); of no name, or
/// of one that is none: program_help().
std::string help_of(const std::string& name);

}  // namespace fsdpbench::app
