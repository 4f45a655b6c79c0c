#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "record/console.h"

namespace fsdpbench::app {
namespace {

/// "trace" and "diff" of "trace diff"; the second is empty where there is one word.
std::pair<std::string, std::string> words_of(const Command& command) {
  const std::size_t space = command.name.find(' ');
  if (space == std::string::npos) return {command.name, ""};
  return {command.name.substr(0, space), command.name.substr(space + 1)};
}

/// "o" and "out" of "-o,--out"; the first is empty where there is a long name only.
std::pair<std::string, std::string> letter_and_name(const Option& option) {
  const std::size_t comma = option.names.find(',');
  if (comma == std::string::npos) return {"", option.names.substr(2)};
  return {option.names.substr(1, comma - 1), option.names.substr(comma + 3)};
}

bool is_shown(const Option& option) { return !option.is_argument() && option.names.find("--") != std::string::npos; }

/// A function that offers commands, then options of the command and files; words of an option where they are known.
std::string bash_script(const std::vector<Command>& commands) {
  std::vector<std::string> first;
  std::string options;
  std::string values;
  for (const Command& command : commands) {
    const std::string head = words_of(command).first;
    if (std::ranges::find(first, head) == first.end()) first.push_back(head);
    std::vector<std::string> words{"--help", "--quiet"};
    for (const Option& option : command.options) {
      if (!is_shown(option)) continue;
      words.push_back("--" + letter_and_name(option).second);
      if (option.words.empty()) continue;
      values += fmt::format("    '{} {}') words='{}' ;;\n", command.name, words.back(), fmt::join(option.words, " "));
    }
    options += fmt::format("    '{}') words='{}' ;;\n", command.name, fmt::join(words, " "));
  }
  std::ranges::sort(first);
  std::string groups;
  for (const std::string& head : first) {
    std::string names;
    for (const Command& command : commands) {
      if (const auto [group, second] = words_of(command); group == head && !second.empty()) names += second + ' ';
    }
    if (!names.empty()) groups += fmt::format("    '{}') words='{}' ;;\n", head, names);
  }
  return fmt::format(R"(_fsdpbench() {{
  local at="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words=
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W '{}' -- "$at"))
    return
  fi
  case "$command" in
{}  esac
  if [ -n "$words" ] && [ "$COMP_CWORD" != 2 ]; then command="$command ${{COMP_WORDS[2]}}" words=; fi
  [ -n "$words" ] || case "$command" in
{}  esac
  case "$command $before" in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$at") $(compgen -f -- "$at"))
}}
complete -o filenames -F _fsdpbench fsdpbench
)",
                     fmt::join(first, " "), groups, options, values);
}

/// `text` between quotes, of fish.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return fmt::format("'{}'", text);
}

std::string fish_script(const std::vector<Command>& commands) {
  std::string script = "complete -c fsdpbench -l help -d 'Explain the command'\n";
  for (const Command& command : commands) {
    const auto [head, second] = words_of(command);
    std::string given = "__fish_seen_subcommand_from " + head;
    script += fmt::format("complete -c fsdpbench -n __fish_use_subcommand -f -a {} -d {}\n", head,
                          quoted(second.empty() ? command.purpose : "Commands for a " + head));
    if (!second.empty()) {
      script += fmt::format("complete -c fsdpbench -n '{}' -f -a {} -d {}\n", given, second, quoted(command.purpose));
      given += "; and __fish_seen_subcommand_from " + second;
    }
    for (const Option& option : command.options) {
      if (!is_shown(option)) continue;
      const auto [letter, name] = letter_and_name(option);
      script += fmt::format("complete -c fsdpbench -n '{}' -l {}", given, name);
      if (!letter.empty()) script += " -s " + letter;
      if (!option.type.empty()) script += " -r";
      if (!option.words.empty()) script += fmt::format(" -f -a '{}'", fmt::join(option.words, " "));
      script += fmt::format(" -d {}\n", quoted(option.meaning));
    }
  }
  return script;
}

constexpr const char* kCompletionHelp =
    R"(Prints a script for the shell, made of the tables that --help is made of.

Examples
  source <(fsdpbench completion bash)
  source <(fsdpbench completion zsh)
  fsdpbench completion fish > ~/.config/fish/completions/fsdpbench.fish
)";

}  // namespace

Command completion_command() {
  const auto shell = std::make_shared<std::string>();
  Command command("completion", CommandGroup::operate, "Complete commands and options in bash, zsh or fish",
                  kCompletionHelp);
  command.argument("SHELL", shell.get(), "bash, zsh or fish").one_of({"bash", "zsh", "fish"});
  command.body = [shell](const Call&) {
    const std::vector<Command> commands = all_commands();
    if (*shell == "zsh") console().print("autoload -U +X bashcompinit && bashcompinit\n");
    console().print(*shell == "fish" ? fish_script(commands) : bash_script(commands));
    return static_cast<int>(ExitCode::ok);
  };
  return command;
}

}  // namespace fsdpbench::app
