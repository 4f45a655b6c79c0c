// The one file that includes CLI11, which takes eight seconds to compile: the commands say what they take in words of
// app/commands/command.h.
#include "app/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>

#include "app/commands/help.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/nearest.h"
#include "record/console.h"
#include "runs/build_info.h"

namespace fsdpbench::app {
namespace {

/// A command that has nothing to do but print.
Command printing(std::string text) {
  Command command("", CommandGroup::operate, "");
  command.body = [text = std::move(text)](const Call&) {
    console().print(text);
    return static_cast<int>(ExitCode::ok);
  };
  return command;
}

/// Declares one option to CLI11, by the type of its target.
struct Declaration {
  CLI::App& app;
  const Option& option;

  CLI::Option* operator()(bool* flag) const { return app.add_flag(option.names, *flag)->disable_flag_override(); }
  CLI::Option* operator()(std::string* text) const { return app.add_option(option.names, *text); }
  CLI::Option* operator()(const ReadWord& read) const {
    return app.add_option_function<std::string>(option.names, read);
  }
  CLI::Option* operator()(const ReadWords& read) const {
    return app.add_option_function<std::vector<std::string>>(option.names, read);
  }
  template <class Value>
  CLI::Option* operator()(Value* value) const {
    return app.add_option(option.names, *value);
  }
};

/// Complaint about a text that must be one of `words`; empty if it is.
std::string word_complaint(const std::string& text, const std::vector<std::string>& words) {
  if (std::ranges::count(words, text) > 0) return "";
  return fmt::format("'{}' is not valid; expected {}{}", text, fmt::join(words, ", "),
                     config::nearest_clause(text, words));
}

/// Complaint about a number that must be within `range`; empty if it is.
std::string range_complaint(const std::string& text, const std::pair<std::int64_t, std::int64_t>& range) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto [least, most] = range;
  if (status == std::errc() && end == text.data() + text.size() && number >= static_cast<double>(least) &&
      number <= static_cast<double>(most)) {
    return "";
  }
  return fmt::format("'{}' is not valid; expected a number from {} to {}", text, least, most);
}

void declare_option(CLI::App& app, const Option& option) {
  CLI::Option* const added = std::visit(Declaration{app, option}, option.target);
  if (!option.type.empty()) added->type_name(option.type);
  if (option.is_required) added->required();
  if (option.range) {
    added->check([range = *option.range](const std::string& text) { return range_complaint(text, range); });
  }
  if (!option.words.empty()) {
    added->check([words = option.words](const std::string& text) { return word_complaint(text, words); });
  }
  if (option.has_list) added->delimiter(',');
  if (option.may_repeat || option.has_list) added->allow_extra_args(false);
  if (option.counts) added->expected(option.counts->first, option.counts->second);
  if (option.last_counts) added->take_last();
  if (option.may_stand_alone) added->expected(0, 1);
}

/// `fsdpbench quickstart` and `fsdpbench a.toml`: what is meant is plain.
bool is_profile(std::string_view name) {
  try {
    config::find_profile(std::string(name));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Throws ConfigError for a word that names no command where there must be one: CLI11 would only say that a subcommand
/// is missing. `path` is what leads to `app`: "" or " trace".
void check_command_name(const CLI::App& app, std::string_view name, std::string_view path) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (name.starts_with("-") || names.empty() || std::ranges::count(names, name) > 0) return;
  const std::string meant =
      path.empty() && is_profile(name) ? fmt::format("run {}", name) : config::nearest(name, names);
  const std::string before = path.empty() ? "" : fmt::format("{} ", path.substr(1));
  throw ConfigError(fmt::format("There is no command '{0}{1}'{2}; see fsdpbench{3} --help.", before, name,
                                meant.empty() ? "" : fmt::format("; the nearest is '{}{}'", before, meant), path));
}

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

/// Throws ConfigError if another option stands beside `alone`: what was measured cannot be set or shown otherwise.
void check_alone(const CLI::App& command, const CLI::Option& alone) {
  if (alone.count() == 0) return;
  for (const CLI::Option* other : command.get_options()) {
    if (other == &alone || other->count() == 0 || other->check_lname("quiet")) continue;
    throw ConfigError(
        fmt::format("{0} {1} shows a result as it was measured, so {2} has no effect; leave {2} out, or "
                    "name a profile instead of {1}.",
                    command.get_name(), alone.get_name(), other->get_name()));
  }
}

/// The command that was given, "run" or "trace diff", or as much of it as there is; `app` itself: none of it.
const CLI::App& chosen_command(const CLI::App& app, std::string& name) {
  const CLI::App* chosen = &app;
  for (auto commands = app.get_subcommands(); !commands.empty(); commands = chosen->get_subcommands()) {
    chosen = commands.front();
    name += fmt::format("{}{}", name.empty() ? "" : " ", chosen->get_name());
  }
  return *chosen;
}

/// Complaint about those of `words` that no option or argument of `command` took; empty if there are none.
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
  const std::string near = config::nearest(name, known);
  if (near == name) {
    return fmt::format("{0} of {1} stands before the command; write fsdpbench {1} … {0}", name, path);
  }
  if (!near.empty()) return fmt::format("{} has no option {}; the nearest is {}", path, name, near);
  std::vector<std::string> others;
  for (const Command& other : all_commands()) {
    const auto is_it = [&](const Option& one) { return one.names == name || one.names.ends_with("," + name); };
    if (std::ranges::any_of(other.options, is_it)) others.push_back(other.name);
  }
  return fmt::format(
      "{} has no option {}{}", path, name,
      others.empty() ? "" : fmt::format(", which {} {}", fmt::join(others, ", "), others.size() == 1 ? "has" : "have"));
}

/// All commands as CLI11 has them.
class Parser {
 public:
  explicit Parser(std::vector<Command>& commands) : app_("", "fsdpbench") {
    app_.set_version_flag("-V,--version", version_line());
    app_.require_subcommand(1);
    for (Command& command : commands) add(command);
  }

  /// The command that was given.
  const Command& parse(int argc, const char* const* argv) {
    check_command_names(app_, argc, argv);
    try {
      app_.parse(argc, argv);
    } catch (const ConfigError&) {  // a misspelt option is the better complaint, as in complaint()
      if (!left_option()) throw;
      throw ConfigError(complaint(CLI::ExtrasError({})));
    } catch (const CLI::ParseError& error) {
      // Asking for help or version is no mistake.
      if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) throw;
      throw ConfigError(complaint(error));
    }
    std::string name;
    chosen_command(app_, name);
    const Added& given = added_.at(name);
    for (const CLI::Option* alone : given.alone) check_alone(*given.app, *alone);
    if (given.command->check) given.command->check();
    return *given.command;
  }

  bool quiet() const { return quiet_; }
  std::string chosen() const {
    std::string name;
    chosen_command(app_, name);
    return name;
  }

 private:
  struct Added {
    Command* command = nullptr;
    CLI::App* app = nullptr;
    std::vector<const CLI::Option*> alone;
  };

  void add(Command& command) {
    const std::size_t space = command.name.find(' ');
    CLI::App* parent = &app_;
    if (space != std::string::npos) {
      CLI::App*& group = groups_[command.name.substr(0, space)];
      if (group == nullptr) {
        group = app_.add_subcommand(command.name.substr(0, space));
        group->require_subcommand(1);
      }
      parent = group;
    }
    Added added{&command, parent->add_subcommand(command.name.substr(space + 1)), {}};  // npos + 1 is 0
    for (const Option& option : command.options) declare_option(*added.app, option);
    for (const Option& option : command.options) {
      CLI::Option* const known = added.app->get_option(option.names.substr(option.names.rfind(',') + 1));
      for (const std::string& other : option.excluded) known->excludes(added.app->get_option(other));
      if (option.goes_alone) added.alone.push_back(known);
    }
    added.app->add_flag("-q,--quiet", quiet_);
    added_.emplace(command.name, std::move(added));
  }

  std::string complaint(const CLI::ParseError& error) const {
    std::string name;
    const CLI::App& chosen = chosen_command(app_, name);
    std::string message = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {  // "--out: 1 required DIR missing"
      if (const auto colon = message.find(": 1 required ");
          message.ends_with(" missing") && colon != std::string::npos) {
        message =
            message.substr(0, colon) + " needs a value: " + message.substr(colon + 13, message.rfind(' ') - colon - 13);
      }
      if (const auto is = message.find(" was given a disallowed"); is != std::string::npos) {
        message = "--" + message.substr(0, is) + " takes no value";
      }
    }
    if (message == "A subcommand is required") {
      std::vector<std::string> names;
      for (const CLI::App* command : chosen.get_subcommands({})) names.push_back(command->get_name());
      message = fmt::format("{} needs a command: {}", name.empty() ? "fsdpbench" : name, fmt::join(names, ", "));
    }
    constexpr std::string_view kNoNumber = "Could not convert: ";  // "--link-scale = two"
    if (const auto equals = message.find(" = "); message.starts_with(kNoNumber) && equals != std::string::npos) {
      message = fmt::format("{}: '{}' is not valid; expected a number",
                            message.substr(kNoNumber.size(), equals - kNoNumber.size()), message.substr(equals + 3));
    }
    // A misspelt option is the better complaint, also where its value now stands for a missing argument.
    const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    if (extras || left_option()) message = not_taken(chosen, name.empty() ? "fsdpbench" : name, app_.remaining(true));
    return fmt::format("{}; see fsdpbench{}{} --help.", message, name.empty() ? "" : " ", name);
  }

  /// Whether no option or argument took a word that looks like an option.
  bool left_option() const {
    return std::ranges::any_of(app_.remaining(true), [](const std::string& word) { return word.starts_with("-"); });
  }

  CLI::App app_;
  bool quiet_ = false;
  std::map<std::string, CLI::App*, std::less<>> groups_;  // "trace", of which there are several commands
  std::map<std::string, Added, std::less<>> added_;
};

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  std::vector<Command> commands = all_commands();
  Parser parser(commands);
  if (argc <= 1) return {printing(program_help())};
  try {
    const Command& given = parser.parse(argc, argv);
    return {given, parser.quiet()};
  } catch (const CLI::CallForHelp&) {
    return {printing(help_of(parser.chosen()))};
  } catch (const CLI::CallForVersion&) {
    return {printing(version_line() + '\n')};
  }
}

}  // namespace fsdpbench::app
