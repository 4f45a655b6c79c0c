#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/setup.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// Whole or not at all: written beside its place, then renamed. Throws OutputError.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Throws OutputError if `folder` or one above it is a file.
void refuse_file_as_folder(const std::filesystem::path& folder);

/// Throws ConfigError if there is something at `path` and nobody asked to replace it, OutputError if that is a folder,
/// which no file replaces: all commands that write one file say so before they begin, in these words and with this
/// code. `option`: what names another one.
void refuse_old_file(const std::filesystem::path& path, bool overwrite, const std::string& option);

/// Treatment of a result that the folder holds already.
enum class OldResult {
  refuse,     ///< throw ConfigError
  overwrite,  ///< take it out: files of ours only
  keep,       ///< it is the command's own, which goes on with it
};

/// The folder that a command writes into, made before it begins, so that a run of hours does not end with "no space" or
/// "no permission"; this process's alone while it lives; taken away again at the end, with the parents that were made
/// for it, if nothing was written.
class ResultFolder {
 public:
  /// `out`, or runs/<stem>-<date-time> if it is empty, which is a new folder whoever else makes one at this moment.
  /// Throws OutputError if no file can be written there or another process is writing there, ConfigError if it holds a
  /// result that must not be lost: of a run or comparison unless `old` says otherwise, of a sweep unless `old` is keep;
  /// or if it is a folder of `reads`, folders and files that the command answers from.
  ResultFolder(const std::string& stem, const std::string& out, OldResult old,
               const std::vector<std::string>& reads = {});
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // parents first
  int lock_ = -1;                            // the open folder, locked
};

/// Writes result.json of a trial, config.toml, then its traces, which take longest and most space: if the disk is full
/// the numbers are there. Each is tried. Throws OutputError that names those that could not be written.
void write_result(const std::filesystem::path& folder, const engine::Setup& setup, const Trial& trial);

}  // namespace fsdpbench::app
