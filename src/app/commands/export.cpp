#include "app/commands/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "app/commands/command.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "record/console.h"
#include "runs/result_folder.h"
#include "trace/whole_file.h"

namespace fsdpbench::app {
namespace {

std::string_view word(dialects::Fate fate) {
  constexpr EnumNames<dialects::Fate> kWords{"same", "written", "roughly", "no word", "yours"};
  return kWords[fate];
}

/// One row a system: how much of this configuration it has words for.
Table overview(const config::RunConfig& config) {
  Table table{.title = "", .header = {"--to", "for", "same", "written", "roughly", "no word", "yours"}, .rows = {}};
  for (const dialects::Dialect& target : dialects::dialects()) {
    const dialects::Export made = dialects::make_export(target, config);
    std::vector<std::string> row{std::string(target.name), std::string(target.system)};
    for (const dialects::Fate fate : {dialects::Fate::same, dialects::Fate::written, dialects::Fate::roughly,
                                      dialects::Fate::lost, dialects::Fate::yours}) {
      row.push_back(std::to_string(made.with(fate).size()));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

void print_overview(const config::RunConfig& config) {
  console().print(overview(config));
  console().print(
      "\nKeys by what becomes of them. same: what the system does anyway; written: said in its words; roughly: it "
      "does\n"
      "something near it; no word: it does otherwise; yours: for your script or the environment. --keys names them.\n");
}

Table key_table(const dialects::Dialect& target, const dialects::Export& made) {
  Table table{.title = fmt::format("{}: {}", target.name, target.system),
              .header = {"key", "value", "becomes", "how"},
              .rows = {}};
  for (const dialects::KeyFate& key : made.keys) {
    if (key.said.fate == dialects::Fate::same) continue;
    table.rows.push_back({key.key, key.value, std::string(word(key.said.fate)), key.said.text});
  }
  return table;
}

/// Warnings that a reader of the files needs, also where the files are not printed.
void say_losses(const dialects::Dialect& target, const dialects::Export& made) {
  for (const dialects::KeyFate& key : made.with(dialects::Fate::lost)) {
    console().warning(fmt::format("{} has no word for {} = {}: {}", target.name, key.key, key.value, key.said.text));
  }
}

void write_files(const ExportArguments& arguments, const std::vector<dialects::ExportFile>& files) {
  const std::filesystem::path folder = arguments.out;
  refuse_file_as_folder(folder);
  for (const dialects::ExportFile& file : files) refuse_old_file(folder / file.name, arguments.overwrite, "--out");
  trace::make_folder(folder);
  for (const dialects::ExportFile& file : files) {
    write_file(folder / file.name, file.text);
    console().print(fmt::format("{}\n", (folder / file.name).string()));
  }
}

void print_files(const std::vector<dialects::ExportFile>& files) {
  for (const dialects::ExportFile& file : files) {
    if (files.size() > 1) console().print(fmt::format("{}==> {} <==\n", &file == files.data() ? "" : "\n", file.name));
    console().print(file.text);
  }
}

std::string export_help() {
  std::string text = "Systems\n";
  for (const dialects::Dialect& target : dialects::dialects())
    text += fmt::format("  {:<15}  {}\n", target.name, target.what);
  return text + R"(  all              each of them
Without --to it prints how many keys of this profile each system has words for. Each file begins with what it could not
say, and what the system does instead; each key that the system has no word for is also a warning.

Examples
  fsdpbench export llama3-8b-emulated
  fsdpbench export llama3-8b-emulated --to megatron-fsdp --keys
  fsdpbench export llama3-8b-emulated --to pytorch-fsdp2 > settings.py
  fsdpbench export runs/first --to deepspeed,accelerate --out settings
)";
}

}  // namespace

int write_exports(const ExportArguments& arguments) {
  const std::vector<const dialects::Dialect*> targets =
      arguments.to.empty() ? std::vector<const dialects::Dialect*>() : dialects::read_export_targets(arguments.to);
  std::vector<std::string> notes;
  config::RunConfig config = config::load_profile(config::find_profile(arguments.profile), arguments.overrides, &notes);
  for (std::string& note : config::validate(config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(note);
  if (targets.empty()) {
    if (!arguments.out.empty() || arguments.keys) {
      throw ConfigError(fmt::format("{} needs --to: the systems to write for; `fsdpbench export PROFILE` lists them.",
                                    arguments.keys ? "--keys" : "--out"));
    }
    print_overview(config);
    return static_cast<int>(ExitCode::ok);
  }
  std::vector<dialects::ExportFile> files;
  for (const dialects::Dialect* target : targets) {
    dialects::Export made = dialects::make_export(*target, config, arguments.traced);
    if (arguments.keys) {
      console().print(key_table(*target, made));
      continue;
    }
    say_losses(*target, made);
    std::ranges::move(made.files, std::back_inserter(files));
  }
  if (arguments.keys) return static_cast<int>(ExitCode::ok);
  if (arguments.out.empty()) {
    print_files(files);
  } else {
    write_files(arguments, files);
  }
  return static_cast<int>(ExitCode::ok);
}

Command export_command() {
  const auto exported = std::make_shared<ExportArguments>();
  Command command("export", CommandGroup::exchange, "Write a profile for PyTorch, DeepSpeed, Megatron …",
                  export_help());
  command.profile(exported->profile, exported->overrides);
  command.option("-t,--to", &exported->to, "NAMES", "Systems, with commas between; default: list them");
  command.flag("--keys", exported->keys, "Print what becomes of every key, instead of the files");
  command.option("-o,--out", &exported->out, "DIR", "Folder for the files; default: print them");
  command.overwrite(exported->overwrite, "Replace files that DIR holds; otherwise that is refused");
  command.body = [exported](const Call&) { return write_exports(*exported); };
  return command;
}

}  // namespace fsdpbench::app
