#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/report_page.h"
#include "record/console.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench import`.
struct ImportArguments {
  std::vector<std::string> files;
  std::vector<std::string> overrides;  ///< `key=value`
  std::int64_t ranks = 0;              ///< 0: as the files say
  std::string model;                   ///< empty: as the files say
  std::string out;                     ///< empty: the profile is printed
  bool overwrite = false;
};

/// Hands over to the Python package in analysis/, which asks this program whether the profile loads.
int import_settings(const ImportArguments& arguments) {
  std::vector<std::string> options;
  for (const std::string& entry : arguments.overrides) options.push_back("--set=" + entry);
  if (arguments.ranks > 0) options.push_back("--ranks=" + std::to_string(arguments.ranks));
  if (!arguments.model.empty()) options.push_back("--model=" + arguments.model);
  if (!arguments.out.empty()) options.push_back("--out=" + arguments.out);
  if (arguments.overwrite) options.emplace_back("--overwrite");
  if (console().quiet()) options.emplace_back("--quiet");
  become_page_program("import", options, arguments.files);
}

constexpr const char* kImportHelp =
    R"(Without FILE it lists the systems, of which each is known by what its files hold. Several files are one profile, as a
model's config.json and DeepSpeed's JSON; later ones win. Settings that no key stands for are warnings, and comments at the
head of the profile. There is no profile without a model: its config.json, or --model. Scripts for PyTorch are not
read: `fsdpbench.torch.profile_of` reads the model that they make (docs/pytorch-job.md).

Examples
  fsdpbench import config.json ds_config.json --ranks 64 > profile.toml
  fsdpbench import train_configs/llama3_8b.toml --ranks 64 --out profile.toml
  fsdpbench import accelerate.yaml --model llama3-8b

Exit codes: 0 written, 2 a file of no system that is known, settings that contradict each other, or something that has to
be given first.
)";

}  // namespace

Command import_command() {
  const auto import = std::make_shared<ImportArguments>();
  Command command("import", CommandGroup::exchange, "Read other systems' settings as a profile", kImportHelp);
  command.argument("FILE", &import->files, "Settings of another system, and its model's").is_required = false;
  command.option("-s,--set", &import->overrides, "KEY=VALUE", "Set one key of the profile; may be repeated");
  command.option("--ranks", &import->ranks, "N", "Ranks of the job, where the files do not say it").within(1, 1 << 20);
  command.option("--model", &import->model, "NAME", "A model of profiles/models, or a config.json");
  command.option("-o,--out", &import->out, "FILE", "File for the profile; default: print it");
  command.overwrite(import->overwrite, "Replace FILE; otherwise that is refused");
  command.body = [import](const Call&) { return import_settings(*import); };
  return command;
}

}  // namespace fsdpbench::app
