#include "app/commands/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "app/console/console.h"
#include "app/console/table.h"
#include "app/report/result_folder.h"
#include "base/bytes.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/checkpoint.h"
#include "engine/checkpoint_folder.h"
#include "engine/weights_file.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

fs::path checkpoint_in(const std::string& folder) {
  if (const std::optional<fs::path> found = engine::newest_checkpoint(folder)) return *found;
  throw ConfigError(
      fmt::format("{}: there is no complete checkpoint; expected the folder of one, or one that holds some.", folder));
}

std::string position_text(const engine::TrainingPosition& position) {
  return fmt::format("{} steps, {} samples", position.steps, position.samples);
}

}  // namespace

int checkpoint_command(const CheckpointShowArguments& arguments) {
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
  if (!manifest.has_digest()) table.rows.push_back({"manifest", engine::without_digest(manifest)});
  console().print(table);
  return static_cast<int>(ExitCode::ok);
}

int checkpoint_command(const CheckpointExportArguments& arguments) {
  refuse_old_file(arguments.file, arguments.overwrite, "name");
  engine::WeightsFormat format;
  if (arguments.names == "hugging-face") format.names = engine::ParameterNames::hugging_face;
  format.dtype = parse_dtype(arguments.dtype).value_or(DType::f32);
  format.moments = arguments.moments;
  if (!arguments.split.empty()) {
    format.most_bytes = parse_bytes(arguments.split).value_or(0);
    if (format.most_bytes <= 0) {
      throw ConfigError(fmt::format("--split {}: expected bytes, as in --split 5GiB.", arguments.split));
    }
  }
  const fs::path folder = checkpoint_in(arguments.folder);
  const engine::WeightsFile written = engine::export_weights(folder, arguments.file, format);
  console().print(fmt::format("{}: {} tensors, {}, {}{}\n", arguments.file, written.tensors,
                              format_bytes(written.bytes), position_text(written.position),
                              written.moments ? ", with moments" : ""));
  return static_cast<int>(ExitCode::ok);
}

int checkpoint_command(const CheckpointImportArguments& arguments) {
  std::vector<std::string> notes;
  config::RunConfig config = config::load_profile(config::find_profile(arguments.profile), arguments.overrides, &notes);
  for (std::string& note : config::validate(config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(note);
  const engine::OwnCheckpoints own(arguments.into);
  const engine::WeightsFile read =
      engine::import_weights(arguments.file, plan::model_shapes(config.model), config.train.optimizer, arguments.into);
  const fs::path folder = engine::step_folder(arguments.into, read.position.steps);
  console().print(fmt::format("{}: {} tensors, {}, {}\n", folder.string(), read.tensors, format_bytes(read.bytes),
                              read.moments || config.train.optimizer == config::Optimizer::sgd
                                  ? position_text(read.position)
                                  : "no moments: the training begins with these parameters"));
  console().print(fmt::format("go on: fsdpbench run {} --resume {}\n", arguments.profile, arguments.into));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
