#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "app/commands/command.h"
#include "base/bytes.h"
#include "base/error.h"
#include "engine/checkpoint.h"
#include "engine/checkpoint_folder.h"
#include "record/console.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench checkpoint show`.
struct CheckpointShowArguments {
  std::string folder;   ///< a checkpoint, or a folder with some, whose newest complete one is meant
  bool verify = false;  ///< read every byte
};

namespace fs = std::filesystem;

fs::path checkpoint_in(const std::string& folder) {
  if (const std::optional<fs::path> found = engine::newest_checkpoint(folder)) return *found;
  throw ConfigError(
      fmt::format("{}: there is no complete checkpoint; expected the folder of one, or one that holds some.", folder));
}

std::string position_text(const engine::TrainingPosition& position) {
  return fmt::format("{} steps, {} samples", position.steps, position.samples);
}

int show_checkpoint(const CheckpointShowArguments& arguments) {
  const fs::path folder = checkpoint_in(arguments.folder);
  const engine::Checkpoint checkpoint(folder);
  const engine::Manifest& manifest = checkpoint.manifest();
  if (arguments.verify) checkpoint.verify();
  std::int64_t bytes = 0, elements = 0;
  for (const engine::ShardFile& file : manifest.files) bytes += file.digest.bytes;
  for (const plan::ParameterShape& parameter : manifest.parameters) elements += parameter.whole_numel();
  Table table{.title = folder.string(), .header = {}, .rows = {}};
  table.rows.push_back({"after", position_text(manifest.position)});
  table.rows.push_back({"optimizer", manifest.optimizer == config::Optimizer::adamw ? "adamw, two moments" : "sgd"});
  table.rows.push_back({"parameters", fmt::format("{} in {} tensors", elements, manifest.parameters.size())});
  if (manifest.data) table.rows.push_back({"data", format_bytes(manifest.data->bytes) + " of text"});
  if (!manifest.training.empty()) table.rows.push_back({"training", manifest.training});
  table.rows.push_back({"files", fmt::format("{}, {}", manifest.files.size(), format_bytes(bytes))});
  table.rows.push_back({"bytes", arguments.verify ? "all are those that were saved"
                                                  : "not compared with their digests; --verify does that"});
  console().print(table);
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kShowHelp =
    R"(`run --set checkpoint.folder=DIR` saves checkpoints, and `run --resume DIR` continues from the newest.

Examples
  fsdpbench checkpoint show saved --verify
)";
}  // namespace

Command checkpoint_show_command() {
  const auto show = std::make_shared<CheckpointShowArguments>();
  Command command("checkpoint show", CommandGroup::exchange, "Print what a checkpoint holds", kShowHelp);
  command.argument("DIR", &show->folder, "A checkpoint, or a folder with some: the newest complete one is read");
  command.flag("--verify", show->verify, "Read every byte and compare it with the digests");
  command.body = [show](const Call&) { return show_checkpoint(*show); };
  return command;
}

}  // namespace fsdpbench::app
