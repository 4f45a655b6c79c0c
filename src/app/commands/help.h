#pragma once

#include <string>
#include <string_view>

namespace fsdpbench::app {

/// Text of `fsdpbench --help`: all commands, group by group.
std::string program_help();

/// Help text of a command ("run", "trace diff") or of the commands of one first word ("trace"); of no name, or
/// of one that is none: program_help().
std::string help_of(const std::string& name);

/// Sets a help text for lines of `width` columns. A blank line stays. Other lines follow each other as one paragraph,
/// but a line that begins with two spaces is a row: "  name  meaning" is wrapped behind the name, and lines that begin
/// with four spaces or more go on with it; a row without two spaces in it is a command line, which is never broken. The
/// line before a row is not joined with it.
std::string format_help_text(std::string_view text, std::size_t width);

}  // namespace fsdpbench::app
