#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "base/read_input.h"
#include "config/fields.h"
#include "config/load.h"
#include "config/validate.h"
#include "dialects/make_import.h"
#include "record/console.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench import`.
struct ImportArguments {
  std::vector<std::string> files;
  std::vector<std::string> overrides;  ///< `key=value`
  std::int64_t ranks = 0;              ///< 0: as the files say
  std::string out;                     ///< empty: the profile is printed
  bool overwrite = false;
};

/// The keys that were read or set, in the order of all keys, below what has none.
std::string profile_of(const dialects::Import& import, const std::vector<config::Entry>& overrides) {
  std::string text = "# Imported from settings of ";
  for (const std::string& system : import.systems) text += (&system == import.systems.data() ? "" : " and ") + system;
  text += " by fsdpbench.\n";
  for (const std::string& sentence : import.unread) text += fmt::format("# Not in here: {}\n", sentence);
  std::string table;
  for (const config::Field& field : config::fields()) {
    const config::Value* value = nullptr;
    for (const auto& [key, read] : import.keys) {
      if (key == field.name()) value = &read;
    }
    for (const config::Entry& entry : overrides) {
      if (entry.name == field.name()) value = &entry.value;
    }
    if (value == nullptr) continue;
    if (field.table != table) text += fmt::format("\n[{}]\n", field.table);
    table = field.table;
    text += fmt::format("{} = {}\n", field.key, config::to_toml(*value));
  }
  return text;
}

int import_settings(const ImportArguments& arguments) {
  if (!arguments.out.empty()) refuse_old_file(arguments.out, arguments.overwrite, "--out");
  std::vector<dialects::ImportFile> files;
  for (const std::string& file : arguments.files)
    files.push_back({file, read_input(file, kMostOfAProfile, "expected a file of another system's settings")});
  dialects::ImportKnown known;
  if (arguments.ranks > 0) known.ranks = arguments.ranks;
  dialects::Import import = dialects::make_import(files, known);
  const auto has_length = [](const auto& key) { return key.first == "train.seq_len"; };
  const auto sets_length = [](const std::string& text) { return text.starts_with("train.seq_len="); };
  if (std::ranges::none_of(import.keys, has_length) && std::ranges::none_of(arguments.overrides, sets_length))
    import.unread.emplace_back("the length of sequences: --set train.seq_len");
  config::RunConfig config = dialects::imported(import, {});
  std::vector<config::Entry> overrides;
  for (const std::string& text : arguments.overrides) {
    config::Entry entry = config::read_override(text);
    const config::Field* field = config::find_field(entry.name);
    if (field == nullptr || !field->read(config, entry.value))
      throw ConfigError(fmt::format("--set {}: no such key, or it does not take this value.", text));
    overrides.push_back(std::move(entry));
  }
  for (const std::string& note : config::validate(config)) console().info(note);
  for (const std::string& sentence : import.unread) console().warning(fmt::format("not in the profile: {}", sentence));
  const std::string profile = profile_of(import, overrides);
  if (arguments.out.empty()) {
    console().print(profile);
  } else {
    write_file(arguments.out, profile);
    console().info(fmt::format("profile  {}", arguments.out));
  }
  return static_cast<int>(ExitCode::ok);
}

std::string import_help() {
  std::string text = "Systems\n";
  for (const std::string_view source : dialects::import_sources()) text += fmt::format("  {}\n", source);
  return text + R"(The system is known by what a file holds. Several files are one profile, as a model's config.json and
DeepSpeed's JSON; later ones win. What has no key is a warning, and a comment at the head of the profile. Scripts for
PyTorch are not read: `fsdpbench.torch.profile_of` reads the model that they make (docs/pytorch-job.md).

Examples
  fsdpbench import config.json ds_config.json --ranks 64 > profile.toml
  fsdpbench import train_configs/llama3_8b.toml --ranks 64 --out profile.toml
  fsdpbench import accelerate.yaml --set model.preset=llama3-8b

Exit codes: 0 written, 2 a file of no system that is known, or settings that contradict each other.
)";
}

}  // namespace

Command import_command() {
  const auto import = std::make_shared<ImportArguments>();
  Command command("import", CommandGroup::exchange, "Read other systems' settings as a profile", import_help());
  command.argument("FILE", &import->files, "Settings of another system, and its model's");
  command.option("-s,--set", &import->overrides, "KEY=VALUE", "Set one key of the profile; may be repeated");
  command.option("--ranks", &import->ranks, "N", "Ranks of the job, where the files do not say it");
  command.option("-o,--out", &import->out, "FILE", "File for the profile; default: print it");
  command.overwrite(import->overwrite, "Replace FILE; otherwise that is refused");
  command.body = [import](const Call&) { return import_settings(*import); };
  return command;
}

}  // namespace fsdpbench::app
