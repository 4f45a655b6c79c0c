#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/read_input.h"
#include "config/find_file.h"
#include "config/sweep_file.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/job_run.h"
#include "runs/measure.h"
#include "runs/result_file.h"
#include "runs/result_folder.h"
#include "runs/sweep_grid.h"
#include "runs/sweep_report.h"
#include "runs/trial_log.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench sweep`.
struct SweepArguments {
  std::string sweep;                   ///< a sweep file or a name: config::find_sweep
  std::vector<std::string> overrides;  ///< `key=value` for all cells; later ones win
  std::string out;                     ///< folder; empty: runs/<stem of the sweep file>
  std::optional<std::int64_t> trials;  ///< of each cell; absent: as the file says
  bool retry_failed = false;           ///< run failed cells again
};

namespace fs = std::filesystem;
using nlohmann::json;

/// Line of progress of the sweep, and how long the rest will take at the mean speed so far.
class SweepProgress {
 public:
  SweepProgress(const SweepGrid& grid, std::size_t missing) : grid_(grid), missing_(missing) {}
  ~SweepProgress() { console().clear_progress(); }
  SweepProgress(const SweepProgress&) = delete;
  SweepProgress& operator=(const SweepProgress&) = delete;

  void done(double seconds) {
    sum_ += seconds;
    ++count_;
    if (missing_ > 0) --missing_;
  }
  /// Trials that will not run because their cell failed.
  void drop(std::size_t trials) { missing_ -= std::min(missing_, trials); }

  void show(const SweepCell& cell, std::int64_t trial) {
    const std::int64_t now = now_ns();
    if (now < next_ns_) return;
    next_ns_ = now + (console().terminal() ? 100'000'000 : 2'000'000'000);
    const std::size_t all = grid_.cells.size() * grid_.file.trials;
    const std::size_t ready = all - missing_;
    const std::size_t filled = 20 * ready / all;
    std::string line =
        fmt::format("[{}{}] trial {} of {}", std::string(filled, '#'), std::string(20 - filled, '.'), ready + 1, all);
    if (count_ > 0) {
      line +=
          fmt::format("  {} left", format_duration(sum_ / static_cast<double>(count_) * static_cast<double>(missing_)));
    }
    console().progress(line + fmt::format("  round {}: {}", trial + 1, describe(grid_, cell)));
  }

 private:
  const SweepGrid& grid_;
  std::size_t missing_;
  double sum_ = 0;
  std::size_t count_ = 0;
  std::int64_t next_ns_ = 0;
};

/// A summary of another sweep must not be overwritten, even if its trials are gone.
void check_summary(const fs::path& path, const SweepGrid& grid) {
  if (!path_exists(path)) return;
  const json old = parse_json(read_input(path, kMostOfAResult, "delete it, or choose another folder with --out"));
  if (!old.is_object() || !old.contains("sweep_hash") || old["sweep_hash"] == grid.hash) return;
  throw ConfigError(
      fmt::format("{} is of another sweep (its base, axes or seed differ from this one's); choose another "
                  "folder with --out, or delete this one.",
                  path.string()));
}

LogOwner owner_of(const SweepGrid& grid) {
  LogOwner owner{grid.hash, {}};
  for (const SweepCell& cell : grid.cells) owner.cells.push_back(cell.id);
  return owner;
}

/// The machine had no memory, no threads or no disk for it at that time.
bool lacked_resources(const LoggedTrial& logged) {
  return !logged.trial && logged.exit_code == static_cast<int>(ExitCode::no_resources);
}

/// Trials that are there, and cells that have failed.
struct State {
  std::set<std::pair<std::string, std::uint64_t>> done;
  std::set<std::string> failed;
};

using LastTries = std::map<std::pair<std::string, std::uint64_t>, const LoggedTrial*>;

LastTries last_tries(const std::vector<LoggedTrial>& trials) {
  LastTries last;
  for (const LoggedTrial& logged : trials) last[{logged.cell, logged.number}] = &logged;
  return last;
}

State state_of(const std::vector<LoggedTrial>& trials, bool retry_failed) {
  State state;
  for (const auto& [key, logged] : last_tries(trials)) {
    if (logged->trial) {
      state.done.insert(key);
    } else if (!retry_failed && !lacked_resources(*logged)) {
      state.failed.insert(key.first);
    }
  }
  return state;
}

/// One trial for the log. Failing is a result too; being stopped, or not being able to write, is not.
LoggedTrial logged_trial(const SweepGrid& grid, const SweepCell& cell, std::uint64_t number, Job* job) {
  LoggedTrial logged{.cell = cell.id, .number = number, .trial = {}, .reason = {}};
  const auto failed = [&](const std::string& reason, ExitCode code) {
    logged.reason = reason;
    logged.exit_code = static_cast<int>(code);
  };
  try {
    logged.trial = whole_trial(cell_config(grid, cell, job), job);
  } catch (const Error& error) {
    if (error.code() == ExitCode::interrupted || error.code() == ExitCode::cannot_write) throw;
    // A rank that was killed says nothing about the cell.
    const double patience_s = error.code() == ExitCode::rank_failed ? 1 : 0;
    if (job != nullptr && job->watch().failure_code(patience_s) && job->channel().failure()->died) throw;
    failed(error.what(), error.code());
  } catch (const std::exception&) {
    const Failure failure = current_failure();
    failed(failure.words, failure.code);
  }
  return logged;
}

class SweepRun {
 public:
  SweepRun(const SweepGrid& grid, const fs::path& folder, bool retry_failed, Job* job)
      : grid_(grid),
        job_(job),
        folder_(folder),
        log_(folder / "trials.jsonl", owner_of(grid)),
        state_(state_of(log_.trials(), retry_failed)),
        progress_(grid, missing()) {
    if (const std::string note = log_.torn_note(); !note.empty()) console().info(note);
    if (!log_.trials().empty()) {
      console().info(fmt::format("going on: {} trials are there, {} are missing", state_.done.size(), missing()));
    }
  }

  /// False if the user stopped it.
  bool run() {
    keep_what_is_done(console().quiet());
    write_summary();
    for (std::int64_t trial = 0; trial < grid_.file.trials; ++trial) {
      for (const std::size_t index : order_of_trial(grid_, trial)) {
        if (interrupt_requested()) return false;
        try {
          run_one(grid_.cells[index], trial);
        } catch (const Interrupted&) {
          return false;
        }
      }
      write_summary();
    }
    return true;
  }

  /// The first failure, if there is nothing else: then it is no result about a cell, but what is wrong here.
  std::optional<LoggedTrial> why_nothing_was_measured() const {
    const std::vector<LoggedTrial>& all = log_.trials();
    const bool any = std::ranges::any_of(all, [](const LoggedTrial& logged) { return logged.trial.has_value(); });
    return any || all.empty() ? std::nullopt : std::optional(all.front());
  }

  /// A failure that says something of the machine as it was, and nothing of its cell.
  std::optional<LoggedTrial> what_the_machine_lacked() const {
    for (const auto& [key, logged] : last_tries(log_.trials())) {
      if (lacked_resources(*logged)) return *logged;
    }
    return std::nullopt;
  }

  json write_summary() {
    json summary = sweep_json(grid_, log_.trials());
    write_file(folder_ / "sweep.json", result_text(summary));
    return summary;
  }

 private:
  std::size_t missing() const {
    std::size_t count = 0;
    for (const SweepCell& cell : grid_.cells) {
      if (!state_.failed.contains(cell.id)) count += missing(cell);
    }
    return count;
  }

  std::size_t missing(const SweepCell& cell) const {
    std::size_t count = 0;
    for (std::int64_t trial = 0; trial < grid_.file.trials; ++trial) {
      count += state_.done.contains({cell.id, static_cast<std::uint64_t>(trial)}) ? 0 : 1;
    }
    return count;
  }

  void run_one(const SweepCell& cell, std::int64_t trial) {
    const auto number = static_cast<std::uint64_t>(trial);
    if (state_.done.contains({cell.id, number}) || state_.failed.contains(cell.id)) return;
    progress_.show(cell, trial);
    LoggedTrial logged = logged_trial(grid_, cell, number, job_);
    if (logged.trial) {
      state_.done.insert({cell.id, number});
      progress_.done(logged.trial->seconds);
    } else {
      progress_.drop(missing(cell));
      state_.failed.insert(cell.id);
      console().warning(fmt::format("cell failed: {}: {}", describe(grid_, cell), logged.reason));
    }
    log_.append(std::move(logged));
    if (job_ != nullptr && job_->watch().failure_code()) {
      throw BackendError("the job has failed with this cell; the same command continues with the others");
    }
  }

  const SweepGrid& grid_;
  Job* job_;
  fs::path folder_;
  TrialLog log_;
  State state_;
  SweepProgress progress_;
};

/// Runs what is not yet in the folder, and writes trials.jsonl and sweep.json there. Returns the process exit code:
/// failed cells are results, so they do not change it. `job`: null, or the job whose rank 0 this is; if that fails, the
/// sweep ends with what it has.
int run_sweep(const SweepArguments& arguments, Job* job) {
  const std::string path = config::find_sweep(arguments.sweep);
  config::SweepFile file = config::load_sweep(path);
  if (arguments.trials) file.trials = *arguments.trials;
  const SweepGrid grid = expand_for_job(std::move(file), arguments.overrides, job);
  const std::string out = arguments.out.empty() ? "runs/" + config::profile_name(path) : arguments.out;
  for (const std::string& note : grid.file.notes) console().info(note);
  const ResultFolder result_folder("", out, OldResult::keep);
  const fs::path& folder = result_folder.path();
  check_summary(folder / "sweep.json", grid);
  console().info(fmt::format("{}: {} cells, {} trials each{}", grid.file.title, grid.cells.size(), grid.file.trials,
                             grid.skipped > 0 ? fmt::format("; {} cells left out by [[skip]]", grid.skipped) : ""));
  bool finished = false;
  std::optional<LoggedTrial> failure, lacked;
  json summary;
  {
    SweepRun run(grid, folder, arguments.retry_failed, job);
    finished = run.run();
    summary = run.write_summary();
    failure = run.why_nothing_was_measured();
    lacked = run.what_the_machine_lacked();
  }
  if (summary.value("mixed_worlds", false)) {
    console().warning("the trials come from different programs or machines; compare their cells with care");
  }
  if (!finished) {
    console().warning(
        fmt::format("interrupted; {} keeps the finished trials, and the same command continues from there",
                    (folder / "trials.jsonl").string()));
    return static_cast<int>(ExitCode::interrupted);
  }
  console().print(sweep_table(summary) + fmt::format("sweep  {}\n", (folder / "sweep.json").string()));
  if (failure) {
    console().error(fmt::format("no cell could be measured: {}", failure->reason));
    return failure->exit_code == 0 ? static_cast<int>(ExitCode::failure) : failure->exit_code;
  }
  if (lacked) {
    console().error(
        fmt::format("not all cells could be measured, and the same command tries them again: {}", lacked->reason));
    return static_cast<int>(ExitCode::no_resources);
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kSweepHelp =
    R"(A sweep file names a base profile and axes, which are keys with lists of values. Every combination is a
cell. Rounds are interleaved: each one runs every cell once.

Files in DIR
  trials.jsonl  each finished run, written at once: the same command continues after a kill or Ctrl-C
  sweep.json    every cell with its medians, or why it failed

Examples
  fsdpbench sweep prefetch-limit-link
  fsdpbench report runs/prefetch-limit-link
)";

}  // namespace

Command sweep_command() {
  const auto sweep = std::make_shared<SweepArguments>();
  Command command("sweep", CommandGroup::measure, "Run every combination of some keys; can be continued", kSweepHelp);
  command.argument("SWEEP", &sweep->sweep, "Sweep: a TOML file, or a name in profiles/sweeps");
  command.set("-s,--set", sweep->overrides, "Set one key of all cells; may be repeated");
  command.option("-o,--out", &sweep->out, "DIR",
                 "Folder; default: runs/<sweep file>; a sweep that is already there is continued");
  command
      .option("-n,--trials", &sweep->trials, "N",
              "Runs of each cell; if there are fewer already, only the missing ones run")
      .within(1, kMostTrials);
  command.flag("--retry-failed", sweep->retry_failed, "Run cells again that failed before");
  command.runs_ranks = true;
  command.body = [sweep](const Call& call) { return run_sweep(*sweep, call.job); };
  return command;
}

}  // namespace fsdpbench::app
