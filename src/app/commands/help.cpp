#include "app/commands/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/nearest.h"
#include "config/write.h"
#include "record/console.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

constexpr std::size_t kLeastWidth = 60, kMostWidth = 120, kPlainWidth = 100;
constexpr std::size_t kWidestNames = 28;  // of options; meanings of wider ones begin on the next line

constexpr const char* kAbout =
    "fsdpbench measures how well FSDP training hides communication behind computation, predicts it for other machines, "
    "and says what to change.";

constexpr const char* kFirstSteps = R"(First steps
  fsdpbench run quickstart
  fsdpbench compare quickstart --set emulate.compute_tflops=0.06 --b-set fsdp.backward_prefetch=none
  fsdpbench simulate llama3-8b-emulated --cluster dgx-h100 --ranks 64
)";

constexpr std::array<std::pair<CommandGroup, const char*>, 5> kGroups{{
    {CommandGroup::measure, "Measure"},
    {CommandGroup::predict, "Predict"},
    {CommandGroup::understand, "Understand"},
    {CommandGroup::operate, "Operate"},
    {CommandGroup::exchange, "Exchange"},
}};

constexpr const char* kKeysHelp =
    R"(Profiles are TOML files, looked up by name in profiles/runs here and where the program was built. A result folder is the
profile that it was made with. The keys that most people set:
  model.preset            quickstart, llama3-8b, gpt2-124m …: a file in profiles/models (profiles/README.md says which
    ones can be trained)
  mesh.ranks              how many ranks; mesh.shard and mesh.replicate for hybrid strategies
  train.steps             measured steps; train.seq_len and train.batch_per_rank set their size
  data.path               any file or folder, read as bytes
  fsdp.strategy           full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_grad_op
  fsdp.preset             fsdp1, fsdp2, deepspeed-z3, megatron-v2 …: all knobs as that engine has them
  fsdp.backward_prefetch  pre, post, none, or a depth
  fsdp.all_gather_limit   unlimited, fsdp1_queue:2, fsdp2_event, strict:2, bytes:64MiB
  fsdp.param_dtype        fp32 or bf16
  emulate.link_gb_per_s   bandwidth of a modelled link; "none" for the real one
  emulate.compute_tflops  modelled compute; "none" to compute

Set them in a profile, or for one call with --set fsdp.backward_prefetch=none.
)";

/// What the keys of a section are about.
constexpr std::array<std::pair<const char*, const char*>, 12> kSections{{
    {"model", "the network: a preset, or its sizes"},
    {"data", "what it is trained on"},
    {"mesh", "how many ranks, and how they are grouped"},
    {"train", "steps, batch, optimizer"},
    {"fsdp", "sharding, prefetching, limits, dtypes: what this program is about"},
    {"device", "where ranks run: CPU, GPU, or nowhere"},
    {"nccl", "options of NCCL"},
    {"emulate", "modelled links and computation, for runs on CPUs"},
    {"simulate", "the machine that `simulate` computes"},
    {"inject", "faults: a slow rank, a slow link, jitter"},
    {"trace", "what is recorded"},
    {"checkpoint", "what is saved, and where training continues"},
}};

constexpr const char* kExitCodes = R"(Exit codes
  0    done
  1    a failure that is not listed here
  2    a wrong profile, option or data, or an output that is there already
  3    not enough memory, address space, threads or disk
  4    an output could not be written
  5    a rank failed; watch: a hang or a silent rank
  6    a measurement contradicts itself; its numbers must not be used
  7    slower: compare --fail-if-slower, gate
  8    training diverged: a loss or a final parameter is NaN or infinite
  9    a collective gave a wrong result
  10   slower than demanded: accept, collectives; watch: a late rank or slow communicator
  11   accept, gate or watch reached no verdict
  12   gate: another machine, or another measurement than the baseline's
  13   accept: nothing is amiss, but fewer rules were rated than asked for
  130  stopped by Ctrl-C, SIGTERM or SIGHUP
)";

/// `text` in lines of `width` columns, behind `first`; all lines but the first are indented by `indent`.
std::string wrapped(std::string_view first, std::string_view text, std::size_t indent, std::size_t width) {
  std::string lines(first);
  std::size_t column = width_of(first);
  bool begins = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    if (!begins && column + 1 + width_of(word) > width) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
      begins = true;
    }
    if (!begins) lines += ' ', ++column;
    lines += word;
    column += width_of(word);
    begins = false;
  }
  return lines + '\n';
}

/// "  name  meaning", wrapped behind the name. A command line, which has no such gap, is not broken.
std::string row_text(std::string_view row, std::size_t width) {
  const std::size_t gap = row.find("  ", row.find_first_not_of(' '));
  if (gap == std::string_view::npos || row.find("fsdpbench ") < gap) return std::string(row) + '\n';
  const std::size_t meaning = row.find_first_not_of(' ', gap);
  return wrapped(row.substr(0, meaning), row.substr(meaning), width_of(row.substr(0, meaning)), width);
}

std::size_t help_width() {
  const std::size_t columns = terminal_columns(stdout);
  return columns == 0 ? kPlainWidth : std::clamp(columns, kLeastWidth, kMostWidth);
}

/// "  name  meaning" for each, the meanings in one column.
std::string rows_text(const std::vector<std::pair<std::string, std::string>>& rows, std::size_t width) {
  std::size_t names = 0;
  for (const auto& [name, meaning] : rows) {
    if (width_of(name) <= kWidestNames) names = std::max(names, width_of(name));
  }
  std::string text;
  for (const auto& [name, meaning] : rows) {
    std::string first = "  " + name;
    if (width_of(name) > names) {
      text += first + '\n';
      first.clear();
    }
    first.resize(first.size() + names + 4 - std::min(names + 4, width_of(first)), ' ');
    text += wrapped(first, meaning, names + 4, width);
  }
  return text;
}

bool takes_many(const Option& option) {
  return std::holds_alternative<std::vector<std::string>*>(option.target) ||
         std::holds_alternative<ReadWords>(option.target);
}

std::string usage(const Command& command) {
  std::string text = fmt::format("Usage: fsdpbench {} [OPTIONS]", command.name);
  for (const Option& option : command.options) {
    if (!option.is_argument()) continue;
    const std::string name = option.names + (takes_many(option) ? "..." : "");
    text += option.is_required ? " " + name : fmt::format(" [{}]", name);
  }
  return text + '\n';
}

/// "-o, --out DIR"; those without a short name stand below the long ones of the others.
std::string option_text(const Option& option) {
  std::string names = option.names;
  if (const std::size_t comma = names.find(','); comma != std::string::npos) {
    names.insert(comma + 1, " ");
  } else {
    names.insert(0, "    ");
  }
  const bool joined = option.type.starts_with('[');
  return option.type.empty() ? names : fmt::format("{}{}{}", names, joined ? "" : " ", option.type);
}

std::string command_help(const Command& command, std::size_t width) {
  std::vector<std::pair<std::string, std::string>> arguments, options;
  for (const Option& option : command.options) {
    if (option.meaning.empty()) continue;
    if (option.is_argument()) {
      arguments.emplace_back(option.names, option.meaning);
    } else {
      options.emplace_back(option_text(option), option.meaning + (option.is_required ? " (required)" : ""));
    }
  }
  options.emplace_back("-q, --quiet", "No progress and no information; results, warnings and errors only");
  std::string text = fmt::format("{}\n{}", command.purpose, usage(command));
  arguments.insert(arguments.end(), options.begin(), options.end());
  text += '\n' + rows_text(arguments, width);
  if (!command.help.empty()) text += '\n' + format_help_text(command.help, width);
  return text;
}

std::string key_text(const config::Field& field, std::size_t width) {
  static const config::RunConfig kDefaults;
  return fmt::format("{} = {}\n", field.name(), config::to_toml(field.write(kDefaults))) +
         wrapped("    ", field.meaning, 4, width) + wrapped("    ", "expected: " + field.valid, 4, width);
}

std::string section_list(std::size_t width) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [section, about] : kSections) {
    const auto keys = std::ranges::count(config::fields(), section, &config::Field::table);
    rows.emplace_back(section, fmt::format("{} ({} {})", about, keys, keys == 1 ? "key" : "keys"));
  }
  return "All keys of a section: fsdpbench help keys SECTION\n" + rows_text(rows, width);
}

/// A section, or one key of it.
std::string keys_help(const std::string& of, std::size_t width) {
  if (of.empty()) return format_help_text(kKeysHelp, width) + '\n' + section_list(width);
  if (const config::Field* field = config::find_field(of)) return key_text(*field, width);
  std::string text;
  for (const config::Field& field : config::fields()) {
    if (field.table == of) text += key_text(field, width);
  }
  if (!text.empty()) return "Keys with their defaults; presets have defaults of their own.\n\n" + text;
  if (of.find('.') != std::string::npos) throw ConfigError(config::unknown_key(of));
  std::vector<std::string> sections;
  for (const auto& [section, about] : kSections) sections.emplace_back(section);
  throw ConfigError(fmt::format("There is no section '{}' of keys; there are {}.", of, fmt::join(sections, ", ")));
}

std::string words_help(const std::vector<std::string>& words) {
  const std::string name = fmt::format("{}", fmt::join(words, " "));
  if (name.empty()) return program_help();
  const std::size_t width = help_width();
  if (words.front() == "keys" && words.size() <= 2) return keys_help(words.size() > 1 ? words[1] : "", width);
  if (name == "exit-codes") return format_help_text(kExitCodes, width);
  std::vector<std::string> known{"keys", "exit-codes"};
  for (const Command& command : all_commands()) {
    known.push_back(command.name);
    known.push_back(command.name.substr(0, command.name.find(' ')));
  }
  if (std::ranges::count(known, name) > 0) return help_of(name);
  if (config::find_field(name) != nullptr) return keys_help(name, width);
  throw ConfigError(
      fmt::format("There is no help for '{}'{}; see fsdpbench --help.", name, config::nearest_clause(name, known)));
}

}  // namespace

std::string format_help_text(std::string_view text, std::size_t width) {
  std::string set, pending;  // a paragraph or a row that may go on
  const auto flush = [&] {
    if (!pending.empty()) set += pending.starts_with("  ") ? row_text(pending, width) : wrapped("", pending, 0, width);
    pending.clear();
  };
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const bool row = line.starts_with("  "), goes_on = row && line.starts_with("    ") && pending.starts_with("  ");
    if (goes_on) {
      pending += ' ' + std::string(line.substr(line.find_first_not_of(' ')));
    } else if (line.empty() || row || pending.starts_with("  ")) {
      flush();
      if (line.empty()) set += '\n';
      pending = line;
    } else {
      pending += pending.empty() ? "" : " ";
      pending += line;
    }
  }
  flush();
  return set;
}

std::string program_help() {
  const std::size_t width = help_width();
  const std::vector<Command> commands = all_commands();
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command& command : commands) rows.emplace_back(command.name, command.purpose);
  std::string text = wrapped("", kAbout, 0, width) + "\nUsage: fsdpbench COMMAND [OPTIONS]\n\n";
  std::size_t names = 0;
  for (const Command& command : commands) names = std::max(names, command.name.size());
  for (const auto& [group, title] : kGroups) {
    text += fmt::format("{}\n", title);
    for (const Command& command : commands) {
      if (command.group != group) continue;
      text += wrapped(fmt::format("  {:<{}}  ", command.name, names), command.purpose, names + 4, width);
    }
  }
  return text + '\n' + format_help_text(kFirstSteps, width) +
         "\nMore: fsdpbench help COMMAND, help keys [SECTION], help exit-codes; --version\n";
}

std::string help_of(const std::string& name) {
  const std::size_t width = help_width();
  std::vector<std::pair<std::string, std::string>> rows;
  std::string examples = "\nExamples\n";
  for (const Command& command : all_commands()) {
    if (command.name == name) return command_help(command, width);
    if (!command.name.starts_with(name + ' ')) continue;
    rows.emplace_back(command.name, command.purpose);
    std::istringstream help(command.help);
    for (std::string line; std::getline(help, line);) {
      if (line.starts_with("  fsdpbench " + name)) examples += line + '\n';
    }
  }
  if (rows.empty()) return program_help();
  return fmt::format("Usage: fsdpbench {} COMMAND [OPTIONS]\n\n", name) + rows_text(rows, width) + examples +
         fmt::format("\nMore: fsdpbench help {}\n", rows.front().first);
}

Command help_command() {
  const auto words = std::make_shared<std::vector<std::string>>();
  Command command("help", CommandGroup::operate, "Explain a command, keys, or exit codes", R"(Examples
  fsdpbench help run              what fsdpbench run --help says
  fsdpbench help keys             the keys that most people set, and the sections
  fsdpbench help keys fsdp        every key of a section, with what it may be
  fsdpbench help keys mesh.ranks  one key
  fsdpbench help exit-codes
)");
  command.argument("WHAT", words.get(), "A command; keys, with a section or a key; or exit-codes").is_required = false;
  command.body = [words](const Call&) {
    console().print(words_help(*words));
    return static_cast<int>(ExitCode::ok);
  };
  return command;
}

}  // namespace fsdpbench::app
