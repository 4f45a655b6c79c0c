#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/byte_dataset.h"
#include "engine/checkpoint.h"
#include "engine/executor.h"
#include "engine/masters.h"
#include "engine/setup.h"
#include "launch/control_channel.h"

/// A folder of checkpoints: which of them is the newest, which may go, and whose it is. Age is the order of saving, not
/// of steps: a training that goes back, or another one in the same folder, saves fewer steps later.
namespace fsdpbench::engine {

/// The checkpoint that is meant by `given`: itself, or the one in it that was saved last. Absent if there is none in a
/// folder that exists (empty ones and parts of checkpoints count as none), or if nothing is there. Throws ConfigError
/// that names a manifest which cannot be read: it might be the newest.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& given);

/// Identity of a training: 32 hexadecimal digits of the system's random numbers.
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

/// Folder of one training, used by its rank 0. Nobody else saves there (OwnCheckpoints).
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

/// Shard of a checkpoint that one rank wrote.
struct SavedShard {
  std::int64_t steps = 0;  ///< done when it was taken
  FileDigest digest;
};

/// One checkpoint that was completed.
struct SavedCheckpoint {
  std::string folder;
  std::int64_t steps = 0;
  std::int64_t bytes = 0;  ///< of all files
};

/// Board on which ranks tell rank 0 that their file is there.
class CheckpointBoard {
 public:
  virtual ~CheckpointBoard() = default;
  /// From any thread of a rank.
  virtual void report(int rank, const SavedShard& shard) = 0;
  /// On rank 0: the next report of `rank`, if it is there; `wait`: it will come, in a job of processes after a while.
  virtual std::optional<SavedShard> next(int rank, bool wait) = 0;
};

/// Ranks that are threads of this process; a report that will come is there.
class ThreadCheckpointBoard : public CheckpointBoard {
 public:
  void report(int rank, const SavedShard& shard) override;
  std::optional<SavedShard> next(int rank, bool wait) override;

 private:
  std::mutex mutex_;
  std::map<int, std::vector<SavedShard>> reports_;
};

/// Ranks that are processes.
class ChannelCheckpointBoard : public CheckpointBoard {
 public:
  /// `channel` must outlive it.
  explicit ChannelCheckpointBoard(launch::ControlChannel& channel) : channel_(channel) {}
  void report(int rank, const SavedShard& shard) override;
  std::optional<SavedShard> next(int rank, bool wait) override;

 private:
  launch::ControlChannel& channel_;
  ThreadCheckpointBoard own_;  // rank 0's: nobody sends to himself
};

/// Saves one rank's part of checkpoints, and on rank 0 completes them. Replicas share the writing of a shard. The rank
/// goes on when its file is on disk. It belongs to one rank, and only its thread uses it.
class CheckpointSaver {
 public:
  /// `data`: what is trained on, as far as it is known, and `training`: which one it is; asked of rank 0. `start`:
  /// where the run began. All references must outlive it.
  CheckpointSaver(const Setup& setup, int rank, Executor& executor, CheckpointBoard& board,
                  std::optional<DataDigest> data, std::string training, TrainingPosition start);

  /// After each step of the run: saves if it is time, and completes what can be.
  void after_step(std::int64_t steps_of_run);
  /// After the last step: saves what was not.
  void finish(std::int64_t steps_of_run);
  /// Rank 0, after finish() on all ranks: completes the rest.
  std::vector<SavedCheckpoint> complete();

 private:
  TrainingPosition position(std::int64_t steps_of_run) const;
  void save(std::int64_t steps_of_run);
  /// The file, until it is on disk.
  SavedShard write(std::int64_t steps);
  void complete_ready(bool wait);

  const Setup& setup_;
  const int rank_;
  Executor& executor_;
  CheckpointBoard& board_;
  const std::optional<DataDigest> data_;
  const std::string training_;
  const TrainingPosition start_;
  const std::filesystem::path folder_;
  const std::vector<Masters::Piece> pieces_;  // that this rank writes
  std::int64_t saved_ = 0;                    // steps of the run when the last one was taken
  std::vector<float> staging_;
  std::optional<CheckpointFolder> own_;     // rank 0
  std::vector<TrainingPosition> expected_;  // rank 0: checkpoints that are not complete, the oldest first
  std::vector<SavedShard> reported_;        // rank 0: of the oldest, by rank
  std::vector<SavedCheckpoint> completed_;  // rank 0
};

}  // namespace fsdpbench::engine
