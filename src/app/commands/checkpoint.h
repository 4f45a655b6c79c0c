#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

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

/// Print what they found or wrote. Return the process exit code; throw ConfigError, OutputError in one sentence.
int checkpoint_command(const CheckpointShowArguments& arguments);
int checkpoint_command(const CheckpointExportArguments& arguments);
int checkpoint_command(const CheckpointImportArguments& arguments);

}  // namespace fsdpbench::app
