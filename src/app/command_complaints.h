#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fsdpbench::app {

/// Throws ConfigError for the first word that names no command where there must be one, with the nearest: CLI11 would
/// only say that a subcommand is missing.
void check_command_names(const CLI::App& app, int argc, const char* const* argv);

/// Throws ConfigError if another option stands beside `alone`: what was measured cannot be set or shown otherwise.
void check_alone(const CLI::App& command, const CLI::Option& alone);

/// The command that was given, its words added to `name` as " run" or " trace check"; null if there is none.
const CLI::App* chosen_command(const CLI::App& app, std::string* name);

/// What `command` cannot take of `words`, those that no option or argument of it took; empty if that is nothing.
std::string not_taken(const CLI::App& command, const std::string& path, const std::vector<std::string>& words);

}  // namespace fsdpbench::app
