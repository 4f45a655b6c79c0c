#include "app/command_complaints.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "config/find_file.h"
#include "config/nearest.h"

namespace fsdpbench::app {
namespace {

/// `fsdpbench quickstart` and `fsdpbench a.toml`: what is meant is plain.
bool is_profile(std::string_view name) {
  try {
    config::find_profile(std::string(name));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// `path` is what leads to `app`: "" or " trace".
void check_command_name(const CLI::App& app, std::string_view name, std::string_view path) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (name.starts_with("-") || names.empty() || std::ranges::count(names, name) > 0) return;
  const std::string meant =
      path.empty() && is_profile(name) ? fmt::format("run {}", name) : config::nearest(name, names);
  throw ConfigError(fmt::format("There is no command '{0}{1}'; the nearest is '{0}{2}'; see fsdpbench{3} --help.",
                                path.empty() ? "" : fmt::format("{} ", path.substr(1)), name, meant, path));
}

}  // namespace

void check_command_names(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    check_command_name(*at, argv[i], path);
    const auto commands = at->get_subcommands({});
    const auto next = std::ranges::find_if(commands, [&](const CLI::App* c) { return c->get_name() == argv[i]; });
    if (next == commands.end()) return;
    at = *next;
    path += fmt::format(" {}", argv[i]);
  }
}

void check_alone(const CLI::App& command, const CLI::Option& alone) {
  if (alone.count() == 0) return;
  for (const CLI::Option* other : command.get_options()) {
    if (other == &alone || other->count() == 0) continue;
    throw ConfigError(
        fmt::format("{0} {1} shows a result as it was measured, so {2} has no effect; leave {2} out, or "
                    "name a profile instead of {1}.",
                    command.get_name(), alone.get_name(), other->get_name()));
  }
}

const CLI::App* chosen_command(const CLI::App& app, std::string* name) {
  const CLI::App* chosen = nullptr;
  for (auto commands = app.get_subcommands(); !commands.empty(); commands = chosen->get_subcommands()) {
    chosen = commands.front();
    *name += ' ' + chosen->get_name();
  }
  return chosen;
}

std::string not_taken(const CLI::App& command, const std::string& path, const std::vector<std::string>& words) {
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("-"); });
  if (option == words.end()) {
    return words.empty() ? "" : fmt::format("{} takes no further argument '{}'", path, words.front());
  }
  const std::string name = option->substr(0, option->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* other : command.get_options()) {
    for (const std::string& text : other->get_lnames()) known.push_back("--" + text);
  }
  return fmt::format("{} has no option {}; the nearest is {}", path, name, config::nearest(name, known));
}

}  // namespace fsdpbench::app
