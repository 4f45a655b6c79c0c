#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint.h"

/// A folder of checkpoints: which of them is the newest, which may go, and whose it is. Age is the order of saving, not
/// of steps: a training that goes back, or another one in the same folder, saves fewer steps later.
namespace fsdpbench::engine {

/// The checkpoint that is meant by `given`: itself, or the one in it that was saved last. Absent if there is none in a
/// folder that exists (empty ones and parts of checkpoints count as none), or if nothing is there. Throws ConfigError
/// that names a manifest which cannot be read: it might be the newest.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& given);

/// What tells a training from all others: 32 hexadecimal digits of the system's random numbers.
std::string new_training();

/// Throws ConfigError if `folder` holds a checkpoint of another training than that which goes on with the checkpoint
/// `resume` (absent: it begins): what it saves would take that one's place.
void check_one_training(const std::filesystem::path& folder, const std::optional<std::filesystem::path>& resume);

/// Keeps other processes from saving into a folder while this one does. The folder is made if it is not there, with its
/// parents, and taken away again if nothing was saved.
class OwnCheckpoints {
 public:
  /// Throws OutputError: the folder cannot be made, or another process has it.
  explicit OwnCheckpoints(const std::filesystem::path& folder);
  ~OwnCheckpoints();
  OwnCheckpoints(const OwnCheckpoints&) = delete;
  OwnCheckpoints& operator=(const OwnCheckpoints&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // the innermost first
  int lock_ = -1;
};

/// What one training, on its rank 0, does with its folder. Nobody else saves there (OwnCheckpoints).
class CheckpointFolder {
 public:
  /// Throws ConfigError if a manifest in it cannot be read.
  CheckpointFolder(std::filesystem::path folder, std::int64_t keep);

  /// Makes the step folder of complete shards a checkpoint, the newest, and removes what is older than `keep` of them.
  /// Removes nothing of steps after this one: other ranks may be saving there. Throws OutputError.
  void complete(Manifest manifest);
  /// No rank saves any more: removes also of later steps what is too old or was never completed.
  void finish();

 private:
  void remove_old(std::int64_t before);

  std::filesystem::path folder_;
  std::int64_t keep_;
  std::int64_t last_ = 0;                     // Manifest::saved of the newest
  std::map<std::int64_t, std::int64_t> age_;  // Manifest::saved by steps
};

}  // namespace fsdpbench::engine
