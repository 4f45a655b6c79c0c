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

constexpr std::size_t kMostWidth = 120;  // of lines to read

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

/// Subject of each section of keys.
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
  3    not enough memory, address space, open files or threads
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

using Rows = std::vector<std::vector<std::string>>;

/// A name each with its meaning, which are wrapped to the width of the terminal; a row alone is wrapped as a whole.
std::string rows_text(Rows rows) {
  const std::size_t width = std::min(terminal_columns(stdout), kMostWidth);
  return format_table({.title = {}, .header = {}, .rows = std::move(rows)}, width);
}

/// Paragraphs; rows "  name  meaning", which continue in lines indented by four; and commands, which are not broken.
std::string prose(const std::string& text) {
  std::string out;
  Rows rows;
  const auto flush = [&] { out += rows.empty() ? "" : rows_text(std::exchange(rows, {})); };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(' '), gap = line.find("  ", begin);
    const bool row = begin == 2 && gap != line.npos && line.find("fsdpbench ") > gap;
    const bool paragraph = begin == 0, after_row = !rows.empty() && rows.back().size() > 1;
    if (begin != line.npos && !rows.empty() && (after_row ? begin > 2 : paragraph)) {
      rows.back().back() += ' ' + line.substr(begin);
    } else if (row) {
      if (!after_row) flush();
      rows.push_back({line.substr(0, gap), line.substr(line.find_first_not_of(' ', gap))});
    } else {
      flush();
      if (paragraph)
        rows.push_back({line});
      else
        out += line + '\n';
    }
  }
  flush();
  return out;
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

std::string command_help(const Command& command) {
  Rows arguments, options;
  for (const Option& option : command.options) {
    if (option.meaning.empty()) continue;
    if (option.is_argument()) {
      arguments.push_back({"  " + option.names, option.meaning});
    } else {
      options.push_back({"  " + option_text(option), option.meaning + (option.is_required ? " (required)" : "")});
    }
  }
  options.push_back({"  -q, --quiet", "No progress and no information; results, warnings and errors only"});
  std::string text = fmt::format("{}\n{}", command.purpose, usage(command));
  arguments.insert(arguments.end(), options.begin(), options.end());
  text += '\n' + rows_text(std::move(arguments));
  return command.help.empty() ? text : text + '\n' + prose(command.help);
}

std::string key_text(const config::Field& field) {
  static const config::RunConfig kDefaults;
  return fmt::format("{} = {}\n", field.name(), config::to_toml(field.write(kDefaults))) +
         rows_text({{"    " + field.meaning}, {"    expected: " + field.valid}});
}

std::string section_list() {
  Rows rows;
  for (const auto& [section, about] : kSections) {
    const auto keys = std::ranges::count(config::fields(), section, &config::Field::table);
    rows.push_back({fmt::format("  {}", section), fmt::format("{} ({} {})", about, keys, keys == 1 ? "key" : "keys")});
  }
  return "All keys of a section: fsdpbench help keys SECTION\n" + rows_text(std::move(rows));
}

/// A section, or one key of it.
std::string keys_help(const std::string& of) {
  if (of.empty()) return prose(kKeysHelp) + '\n' + section_list();
  if (const config::Field* field = config::find_field(of)) return key_text(*field);
  std::string text;
  for (const config::Field& field : config::fields()) {
    if (field.table == of) text += key_text(field);
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
  if (words.front() == "keys" && words.size() <= 2) return keys_help(words.size() > 1 ? words[1] : "");
  if (name == "exit-codes") return prose(kExitCodes);
  std::vector<std::string> known{"keys", "exit-codes"};
  for (const Command& command : all_commands()) {
    known.push_back(command.name);
    known.push_back(command.name.substr(0, command.name.find(' ')));
  }
  if (std::ranges::count(known, name) > 0) return help_of(name);
  if (config::find_field(name) != nullptr) return keys_help(name);
  throw ConfigError(
      fmt::format("There is no help for '{}'{}; see fsdpbench --help.", name, config::nearest_clause(name, known)));
}

}  // namespace

std::string program_help() {
  const std::vector<Command> commands = all_commands();
  Rows rows;
  for (const auto& [group, title] : kGroups) {
    rows.push_back({title, ""});
    for (const Command& command : commands) {
      if (command.group == group) rows.push_back({"  " + command.name, command.purpose});
    }
  }
  return rows_text({{kAbout}}) + "\nUsage: fsdpbench COMMAND [OPTIONS]\n\n" + rows_text(std::move(rows)) + '\n' +
         kFirstSteps + "\nMore: fsdpbench help COMMAND, help keys [SECTION], help exit-codes; --version\n";
}

std::string help_of(const std::string& name) {
  Rows rows;
  std::string examples = "\nExamples\n";
  for (const Command& command : all_commands()) {
    if (command.name == name) return command_help(command);
    if (!command.name.starts_with(name + ' ')) continue;
    rows.push_back({"  " + command.name, command.purpose});
    std::istringstream help(command.help);
    for (std::string line; std::getline(help, line);) {
      if (line.starts_with("  fsdpbench " + name)) examples += line + '\n';
    }
  }
  if (rows.empty()) return program_help();
  return fmt::format("Usage: fsdpbench {} COMMAND [OPTIONS]\n\n", name) + rows_text(std::move(rows)) + examples +
         fmt::format("\nMore: fsdpbench help {} COMMAND\n", name);
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
