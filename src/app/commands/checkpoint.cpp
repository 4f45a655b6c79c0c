#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
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

/// The command lines of `fsdpbench checkpoint show`, `export` and `import`.
struct CheckpointShowArguments {
  std::string folder;   ///< a checkpoint, or a folder with some, whose newest complete one is meant
  bool verify = false;  ///< read every byte
};

struct CheckpointExportArguments {
  std::string folder;
  std::string file;
  std::string names = "own";   ///< or "hugging-face"
  std::string dtype = "fp32";  ///< of parameters, or "bf16"
  std::string split;           ///< bytes of a file, "5GiB": `file` is a folder of several; empty: one file
  bool moments = false;
  bool overwrite = false;  ///< replace `file`
};

struct CheckpointImportArguments {
  std::string file;
  std::string profile;                 ///< of the model: config::find_profile
  std::vector<std::string> overrides;  ///< `key=value`, in the order given; later ones win
  std::string into;                    ///< folder of checkpoints
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
  std::int64_t bytes = 0, elements = 0, frozen = 0;
  for (const engine::ShardFile& file : manifest.files) bytes += file.digest.bytes;
  for (const plan::ParameterShape& parameter : manifest.parameters) {
    elements += parameter.whole_numel();
    if (parameter.frozen) frozen += parameter.whole_numel();
  }
  Table table{.title = folder.string(), .header = {}, .rows = {}};
  table.rows.push_back({"after", position_text(manifest.position)});
  table.rows.push_back({"optimizer", manifest.optimizer == config::Optimizer::adamw ? "adamw, two moments" : "sgd"});
  table.rows.push_back({"parameters", fmt::format("{} in {} tensors", elements, manifest.parameters.size())});
  if (frozen > 0) table.rows.push_back({"frozen", fmt::format("{} of them, which have no moments", frozen)});
  if (manifest.expert_bias) table.rows.push_back({"routers", "a bias for each expert"});
  if (manifest.data) table.rows.push_back({"data", format_bytes(manifest.data->bytes) + " of text"});
  if (!manifest.training.empty()) table.rows.push_back({"training", manifest.training});
  table.rows.push_back({"files", fmt::format("{}, {}", manifest.files.size(), format_bytes(bytes))});
  table.rows.push_back({"bytes", arguments.verify ? "all are those that were saved"
                                                  : "not compared with their digests; --verify does that"});
  if (!manifest.has_digest()) table.rows.push_back({"manifest", engine::without_digest(manifest)});
  console().print(table);
  return static_cast<int>(ExitCode::ok);
}

int export_checkpoint(const CheckpointExportArguments& arguments) {
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

int import_checkpoint(const CheckpointImportArguments& arguments) {
  std::vector<std::string> notes;
  config::RunConfig config = config::load_profile(config::find_profile(arguments.profile), arguments.overrides, &notes);
  for (std::string& note : config::validate(config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(note);
  const engine::OwnCheckpoints own(arguments.into);
  const engine::WeightsFile read = engine::import_weights(arguments.file, plan::model_shapes(config.model),
                                                          config.train.optimizer, arguments.into, config.train.seed);
  const fs::path folder = engine::step_folder(arguments.into, read.position.steps);
  console().print(fmt::format("{}: {} tensors, {}, {}{}\n", folder.string(), read.tensors, format_bytes(read.bytes),
                              read.moments || config.train.optimizer == config::Optimizer::sgd
                                  ? position_text(read.position)
                                  : "no moments: the training begins with these parameters",
                              read.adapters > 0 ? fmt::format(", and with {} new adapters", read.adapters / 2) : ""));
  std::string set;
  for (const std::string& one : arguments.overrides) set += " --set " + one;
  console().print(fmt::format("go on: fsdpbench run {}{} --resume {}\n", arguments.profile, set, arguments.into));
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kCheckpointFolder = "A checkpoint, or a folder with some: the newest complete one is read";
constexpr const char* kShowHelp =
    R"(`run --set checkpoint.folder=DIR` saves checkpoints, and `run --resume DIR` continues from the newest.

Examples
  fsdpbench checkpoint show saved --verify
)";
constexpr const char* kWeightsHelp =
    R"(Safetensors files hold every parameter whole, in fp32 or bf16, in one file or in several with an index.
transformers, PyTorch and JAX read them.

Examples
  fsdpbench checkpoint export saved model.safetensors --names hugging-face
  fsdpbench checkpoint export saved model --names hugging-face --dtype bf16 --split 5GiB
)";
constexpr const char* kImportHelp =
    R"(The file must hold every parameter whole, in fp32 or bf16, under either set of names.

Examples
  fsdpbench checkpoint import model.safetensors quickstart --into begun
  fsdpbench run quickstart --resume begun
)";

}  // namespace

Command checkpoint_show_command() {
  const auto show = std::make_shared<CheckpointShowArguments>();
  Command command("checkpoint show", CommandGroup::exchange, "Print what a checkpoint holds", kShowHelp);
  command.argument("DIR", &show->folder, kCheckpointFolder);
  command.flag("--verify", show->verify, "Read every byte and compare it with the digests");
  command.body = [show](const Call&) { return show_checkpoint(*show); };
  return command;
}

Command checkpoint_export_command() {
  const auto exported = std::make_shared<CheckpointExportArguments>();
  Command command("checkpoint export", CommandGroup::exchange, "Write a checkpoint's weights as safetensors",
                  kWeightsHelp);
  command.argument("DIR", &exported->folder, kCheckpointFolder);
  command.argument("FILE", &exported->file, "weights.safetensors; with --split, a folder");
  command.option("--names", &exported->names, "NAMES", "own, or hugging-face for transformers' Llama; default: own")
      .one_of({"own", "hugging-face"});
  command.option("--dtype", &exported->dtype, "DTYPE", "Dtype of parameters, fp32 or bf16; default: fp32")
      .one_of({"fp32", "bf16"});
  command.option("--split", &exported->split, "SIZE", "Write several files of at most this size, with an index: 5GiB");
  command.flag("--moments", exported->moments, "Add AdamW's moments, so that training can continue exactly");
  command.overwrite(exported->overwrite, "Replace FILE; otherwise that is refused");
  command.body = [exported](const Call&) { return export_checkpoint(*exported); };
  return command;
}

Command checkpoint_import_command() {
  const auto imported = std::make_shared<CheckpointImportArguments>();
  Command command("checkpoint import", CommandGroup::exchange, "Make a checkpoint of safetensors, for run --resume",
                  kImportHelp);
  command.argument("FILE", &imported->file, "A safetensors file, an index, or a folder with one");
  command.profile(imported->profile, imported->overrides);
  command.option("--into", &imported->into, "DIR", "Folder of checkpoints").required();
  command.body = [imported](const Call&) { return import_checkpoint(*imported); };
  return command;
}

}  // namespace fsdpbench::app
