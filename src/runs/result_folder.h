#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/setup.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// Disk space for the results of one run, in bytes: an upper bound, made before it runs.
struct DiskNeed {
  std::int64_t all = 0;
  std::int64_t largest = 0;  ///< file
  std::string largest_name;
};
DiskNeed predict_disk_need(const engine::Setup& setup);

/// Throws ResourceError, in one sentence with `advice`, if `folder` (which may not be there yet) has less than `bytes`
/// free; `what` needs them: "the results of this run".
void check_space(const std::filesystem::path& folder, std::int64_t bytes, const char* what, const char* advice);

/// Throws ResourceError, in one sentence, if `folder` (which may not be there yet) has less space free than that or a
/// file may not become so large here (`ulimit -f`); also of the checkpoints, in their folder.
void check_disk(const std::filesystem::path& folder, const engine::Setup& setup);

/// Whole or not at all: written beside its place, then renamed. Throws OutputError.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Throws ConfigError if there is something at `path` and nobody asked to replace it: all commands that write one file
/// say so before they begin, in these words and with this code. `option`: what names another one.
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
  /// result that must not be lost: of a run or comparison unless `old` says otherwise, of a sweep unless `old` is keep.
  ResultFolder(const std::string& stem, const std::string& out, OldResult old);
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
