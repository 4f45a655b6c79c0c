#pragma once

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/done_steps.h"
#include "engine/setup.h"
#include "launch/control_channel.h"

namespace fsdpbench::app {

/// What one rank of a job saves if the run cannot end as it should: a result.json that says so beside its config.toml,
/// and the rank's own trace. Thread-safe: the thread that trains may be stuck.
class RunRescue {
 public:
  /// `folder`: the result folder, empty if there is none: then nothing is saved. `frame`: result_frame() of the run.
  /// `setup` must outlive this.
  RunRescue(std::filesystem::path folder, nlohmann::json frame, const engine::Setup& setup, int rank);

  /// Where the rank's run leaves what it has completed.
  engine::DoneSteps& done() { return done_; }

  /// Writes result.json, marked as not complete and with `failure` (null: the user stopped it), then this rank's trace
  /// of its completed measured steps. Only one rank writes result.json: rank 0, or, if that died, the first other
  /// one that finds none. A rank 0 that was given up and wakes leaves the verdict that it finds. A failure is saved once. Returns a sentence about what there is; empty: nothing was written.
  /// Throws OutputError.
  std::string save(const launch::JobFailure* failure);

  /// The run has ended well: from now on save() does nothing.
  void close();

 private:
  void write_result(const launch::JobFailure* failure, const engine::DoneSteps::Snapshot& done);
  bool result_is_missing() const;
  bool verdict_is_there() const;

  const std::filesystem::path folder_;
  const nlohmann::json frame_;
  const engine::Setup& setup_;
  const int rank_;
  engine::DoneSteps done_;
  std::mutex mutex_;
  bool closed_ = false;
};

}  // namespace fsdpbench::app
