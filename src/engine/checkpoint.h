#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/run_config.h"
#include "engine/byte_dataset.h"
#include "engine/masters.h"
#include "engine/setup.h"

/// A training, so far, on disk: a folder `step-000000012` with the state of each rank as the engine holds it, and a
/// manifest, which is written last. A folder without one is no checkpoint. It resumes under the plan that saved it
/// (docs/checkpoint.md).
namespace fsdpbench::engine {

/// Folder of a checkpoint after `steps` steps, in `folder`.
std::filesystem::path step_folder(const std::filesystem::path& folder, std::int64_t steps);

/// The checkpoint that is meant by `given`: itself, or the complete one in it with the most steps. Absent if there is
/// none: empty folders and parts of checkpoints count as none.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& given);

/// Throws ConfigError if `folder` holds checkpoints and the training does not go on with the newest of them: what it
/// saves would take their place. `resume`: the checkpoint that it goes on with; absent: it begins.
void check_one_training(const std::filesystem::path& folder, const std::optional<std::filesystem::path>& resume);

/// Keeps other processes from saving into a folder while this one does. The folder is made if it is not there.
class OwnCheckpoints {
 public:
  /// Throws OutputError: the folder cannot be made, or another process has it.
  explicit OwnCheckpoints(const std::filesystem::path& folder);
  ~OwnCheckpoints();
  OwnCheckpoints(const OwnCheckpoints&) = delete;
  OwnCheckpoints& operator=(const OwnCheckpoints&) = delete;

 private:
  int lock_ = -1;
};

/// One that is there, to be read. Thread-safe.
class Checkpoint {
 public:
  /// Reads its manifest. Throws ConfigError in one sentence that names the file: no checkpoint, or a damaged manifest.
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const TrainingPosition& position() const { return position_; }
  /// Throws ConfigError in one sentence: saved under another plan than that of `config`, with the key and both values;
  /// a file that is missing or has another size.
  void check(const config::RunConfig& config) const;
  /// Gives a rank its state, all of it read and compared with its digest. Throws ConfigError that names the file.
  void load(const plan::Plan& plan, int rank, Masters& masters) const;

 private:
  struct File {
    std::int64_t bytes = 0;
    std::string digest;
  };
  std::filesystem::path folder_;
  TrainingPosition position_;
  std::map<std::string, std::string> plan_;  // keys that decide what a rank holds, with their values
  std::map<std::string, File> files_;        // by name
};

/// One checkpoint that was completed.
struct SavedCheckpoint {
  std::string folder;
  std::int64_t steps = 0;
  std::int64_t bytes = 0;  ///< of all files
  double ms = 0;           ///< that the training stood still for it
};

/// Saves one rank's part of checkpoints, and on rank 0 completes them. All ranks wait for each other: none goes on
/// before the checkpoint is complete. It belongs to one rank, and only its thread uses it.
class CheckpointSaver {
 public:
  /// `start`: where the run began. All references must outlive it.
  CheckpointSaver(const Setup& setup, backend::RankContext& context, const Masters& masters, TrainingPosition start)
      : setup_(setup), context_(context), masters_(masters), start_(start) {}

  /// After each step of the run: saves if it is time. Throws OutputError.
  void after_step(std::int64_t steps_of_run);
  /// After the last step: saves what was not.
  void finish(std::int64_t steps_of_run);
  /// Those of rank 0, also what was removed again.
  const std::vector<SavedCheckpoint>& completed() const { return completed_; }

 private:
  TrainingPosition position(std::int64_t steps_of_run) const;
  void save(std::int64_t steps_of_run);
  void write_state(const std::filesystem::path& folder) const;
  /// Rank 0, once all files are there. Returns their bytes.
  std::int64_t write_manifest(const std::filesystem::path& folder, const TrainingPosition& at) const;
  void remove_old(std::int64_t steps) const;

  const Setup& setup_;
  backend::RankContext& context_;
  const Masters& masters_;
  const TrainingPosition start_;
  std::int64_t saved_ = 0;  // steps of the run when the last one was saved
  std::vector<SavedCheckpoint> completed_;
};

}  // namespace fsdpbench::engine
