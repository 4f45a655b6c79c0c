#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/done_steps.h"
#include "engine/setup.h"
#include "launch/control_channel.h"

namespace fsdpbench::app {

/// What a process saves if the run cannot end as it should: a result.json that says so beside its config.toml, and the
/// traces of its ranks: one in a job, all in a run of threads. Thread-safe: the threads that train may be stuck.
class RunRescue {
 public:
  /// `folder`: the result folder, empty if there is none: then nothing is saved. `frame`: result_frame() of the run.
  /// `setup` must outlive this. The ranks here are `rank` and those that follow it, `ranks_here` of them.
  RunRescue(std::filesystem::path folder, nlohmann::json frame, const engine::Setup& setup, int rank,
            int ranks_here = 1);

  /// Where the run leaves what its ranks have completed: RunHooks::done.
  engine::DoneSteps* done() { return done_.get(); }
  /// The first rank here that has failed by itself; -1: none.
  int failed_rank() const;

  /// Writes result.json, marked as not complete and with `failure` (null: the user stopped it), then the traces of the
  /// ranks here, of their completed measured steps. Only one rank writes result.json: rank 0, or, if that died, the first
  /// other one that finds none. A rank 0 that was given up and wakes leaves the verdict that it finds. A failure is saved
  /// once. Returns a sentence about what there is; empty: nothing was written. Throws OutputError.
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
  const int ranks_here_;
  const std::unique_ptr<engine::DoneSteps[]> done_;
  std::mutex mutex_;
  bool closed_ = false;
};

}  // namespace fsdpbench::app
