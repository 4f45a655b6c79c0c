#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/op_runner.h"
#include "record/console.h"
#include "runs/job_run.h"
#include "runs/sweep_grid.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// Says how far a run is: step, loss, remaining time. At most ten times a second on a terminal, every other second
/// elsewhere; the first and the last step always.
class Progress {
 public:
  /// `now_ns` is the time at which the first step begins (base/clock.h).
  Progress(Console& console, std::int64_t steps, std::int64_t now_ns);
  ~Progress() { console_.clear_progress(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are complete. `loss`: of the last step whose loss is known; absent: none is.
  void update(std::int64_t done, const std::optional<engine::StepLoss>& loss, std::int64_t now_ns);

 private:
  Console& console_;
  std::int64_t steps_;
  std::int64_t begin_ns_;
  std::int64_t next_ns_;
};

/// "1 h 05 min", "2 min 03 s", "4 s", "0.3 s".
std::string format_duration(double seconds);

/// Ranks of this host, as open_cell() wants them: of a job (null: none) whose rank 0 this is, else 0.
int local_ranks(const Job* job);
/// Place of this process in its job; null without one. Lives as long as the job.
const launch::Placement* placement_of(const Job* job);

/// One trial of `cell`: on threads of this process, or on the processes of `job`, whose ranks then save what they have
/// done in `folder` if it fails (empty: nowhere). Throws as run_trial().
Trial measure(const Cell& cell, const engine::RunHooks& hooks, Job* job, const std::filesystem::path& folder,
              std::vector<std::string> command_line);

/// One trial of a sweep or a comparison, whose steps are all there. If `keep` is not empty, its result folder is
/// written there. Throws as run_trial(), Interrupted if the user stopped it (a part of a trial is no trial), and Error
/// with ExitCode::diverged. `enough`, asked before each step, ends it after the steps done so far, which then is none
/// of a sweep; it may have measured none.
Trial whole_trial(const config::RunConfig& config, Job* job, const std::filesystem::path& keep = {},
                  const std::function<bool()>& enough = {});

/// The grid of a sweep. In a job (null: none) all cells that do not say otherwise have as many ranks as it has
/// processes, so that trials of another job are not taken for its own. Throws as expand_sweep().
SweepGrid expand_for_job(config::SweepFile file, std::vector<std::string> overrides, const Job* job);
/// The configuration of one of its cells. Throws as load_config().
config::RunConfig cell_config(const SweepGrid& grid, const SweepCell& cell, const Job* job);

/// Message of a caught exception, and its exit code. Call it in a handler.
struct Failure {
  std::string words;
  ExitCode code = ExitCode::failure;
};
Failure current_failure();

/// The exit code that `body` returns, or that of what it throws, which is shown if this process `speaks`.
int guarded(bool speaks, const std::function<int()>& body);
/// This process's part of a job: rank 0 executes `lead`, the others serve it, `services` beside training; `quiet`: a
/// signal is obeyed without a word. Returns the job's exit code. A failure of the job is shown by its watch, by the
/// ranks that should.
int in_job(const launch::Placement& placement, bool quiet, const Services& services,
           const std::function<int(Job&)>& lead);

}  // namespace fsdpbench::app
