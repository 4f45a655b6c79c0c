#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/validate.h"
#include "engine/checkpoint.h"
#include "foreign/xla_program.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "runs/assumptions.h"
#include "runs/measure.h"
#include "runs/result_folder.h"
#include "runs/run_table.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench run`.
struct RunArguments {
  std::string profile;                 ///< a file, a result folder, or a name: config::find_profile
  std::vector<std::string> overrides;  ///< `key=value`, in the order given; later ones win
  std::string out;                     ///< result folder; empty: runs/<profile stem>-<date-time>
  std::optional<std::string> resume;   ///< the same as checkpoint.resume, but not empty
  bool overwrite = false;              ///< replace a result that `out` holds
};

namespace fs = std::filesystem;

/// Where the checkpoints of `config` are, for ranks that may be elsewhere.
void make_absolute(config::Checkpointing& checkpoint) {
  for (std::string* path : {&checkpoint.folder, &checkpoint.resume}) {
    if (path->empty()) continue;
    const fs::path whole = fs::absolute(*path).lexically_normal();
    *path = (whole.has_filename() ? whole : whole.parent_path()).string();
  }
}

/// Whether anything will be saved, as config::validate() decides.
bool saves(config::RunConfig config) {
  config::validate(config);
  return !config.checkpoint.folder.empty();
}

/// Finds the checkpoint that checkpoint.resume means, and leaves of train.steps what is still to do. True: nothing is,
/// and train.steps is as it was.
bool go_on(config::RunConfig& config) {
  config::Checkpointing& checkpoint = config.checkpoint;
  if (checkpoint.resume.empty()) return false;
  const std::optional<fs::path> found = engine::newest_checkpoint(checkpoint.resume);
  if (!found && checkpoint.resume == checkpoint.folder) {
    console().info(fmt::format("{}: no checkpoint yet; the training begins", checkpoint.folder));
    checkpoint.resume.clear();
    return false;
  }
  if (!found) {
    throw ConfigError(fmt::format(
        "{}: there is no complete checkpoint; expected one, or a folder in which `run` saved some (checkpoint.folder).",
        checkpoint.resume));
  }
  checkpoint.resume = found->string();
  const std::int64_t done = engine::Checkpoint(*found).position().steps;
  const std::int64_t left = config.train.warmup + config.train.steps - done;
  if (left == 0) return true;
  if (left < 0) {
    throw ConfigError(
        fmt::format("{}: this training has done {} steps, and train.warmup + train.steps = {}; raise "
                    "train.steps to go on.",
                    checkpoint.resume, done, config.train.warmup + config.train.steps));
  }
  config.train.warmup = std::min(config.train.warmup, left - 1);
  config.train.steps = left - config.train.warmup;
  console().info(fmt::format("going on after step {} of {}: {} steps are left", done, checkpoint.resume, left));
  return false;
}

/// Trains, measures and writes the result folder.
int run_profile(const RunArguments& arguments, const Call& call) {
  Job* const job = call.job;
  const std::string profile = config::find_profile(arguments.profile);
  std::vector<std::string> notes;
  config::RunConfig wanted = load_config(profile, arguments.overrides, placement_of(job), &notes);
  if (arguments.resume) {
    if (arguments.resume->empty()) {
      throw ConfigError("--resume is empty; expected a checkpoint, or a folder in which `run` saves some.");
    }
    wanted.checkpoint.resume = *arguments.resume;
  }
  make_absolute(wanted.checkpoint);
  if (const std::string& kept = wanted.checkpoint.folder;
      !kept.empty() && fs::weakly_canonical(kept) == fs::weakly_canonical(arguments.out)) {
    throw ConfigError(
        fmt::format("checkpoint.folder = \"{}\" is --out, too; choose another folder for one of them.", kept));
  }
  std::optional<engine::OwnCheckpoints> own;  // before it is looked for the newest one, until all are saved
  if (saves(wanted)) own.emplace(wanted.checkpoint.folder);
  const bool finished = go_on(wanted);
  if (own && !finished) {
    const std::string& resume = wanted.checkpoint.resume;
    engine::check_one_training(wanted.checkpoint.folder,
                               resume.empty() ? std::nullopt : std::optional<fs::path>(resume));
  }
  const Cell cell = open_cell(std::move(wanted), local_ranks(job));
  for (const std::string& note : notes) console().info(note);
  for (const std::string& note : cell.notes) console().info(note);
  if (finished && cell.resume) {  // what a scheduler has started once more has not failed
    console().print(
        fmt::format("{}: this training has done all of its {} steps; nothing is left to do. Raise train.steps to "
                    "go on.\n",
                    cell.resume->folder().string(), cell.resume->position().steps));
    return static_cast<int>(ExitCode::ok);
  }
  const config::RunConfig& config = cell.setup.config;
  std::istringstream assumptions;  // of the profile, which may be of the result that is overwritten
  if (config.device.backend == config::BackendKind::virtual_ && !config.simulate.cluster.empty()) {
    assumptions.str(assumptions_text(assumptions_of(config, profile, arguments.overrides)));
  }
  const ResultFolder folder(config::profile_name(profile), arguments.out,
                            arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  console().info(run_headline(cell.setup));
  for (std::string line; std::getline(assumptions, line);) console().info(line);

  keep_what_is_done(console().quiet());
  Trial trial;
  {
    Progress progress(console(), config.train.warmup + config.train.steps, now_ns());
    engine::RunHooks hooks;
    hooks.progress = [&](std::int64_t done, const std::optional<engine::StepLoss>& loss) {
      progress.update(done, loss, now_ns());
    };
    hooks.stop = interrupt_requested;
    trial = measure(cell, hooks, job, folder.path(), call.command_line);
  }
  console().print(run_table(cell.setup, trial, folder.path()));  // first: it needs no disk
  write_result(folder.path(), cell.setup, trial);
  if (trial.interrupted) {
    console().warning(
        fmt::format("interrupted after {} of {} steps; the results above are of the steps done, and {} "
                    "says \"complete\": false",
                    trial.measurement.steps_done, config.train.warmup + config.train.steps,
                    (folder.path() / "result.json").string()));
    return static_cast<int>(ExitCode::interrupted);
  }
  if (!trial.diverged_because.empty()) {
    console().error("training diverged: " + trial.diverged_because);
    return static_cast<int>(ExitCode::diverged);
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kRunHelp = R"(Written into the result folder:
  result.json  every number, with the machine and build it was measured on
  trace.json   a timeline of all ranks, for https://ui.perfetto.dev or chrome://tracing
  trace/       one file per rank, rank_0.json.gz …, for PyTorch's tools such as HTA
  config.toml  the complete configuration, which is a profile itself
Ctrl-C stops after the current step and keeps what has been measured, marked as partial. A second
Ctrl-C stops at once.

Examples
  fsdpbench run quickstart
  fsdpbench run quickstart --set emulate.compute_tflops=0.06 --out runs/first
  fsdpbench run quickstart --set emulate.compute_tflops=0.06 --set fsdp.backward_prefetch=none
  fsdpbench run llama3-8b-emulated --set fsdp.strategy=shard_grad_op
  fsdpbench report runs/first
)";

constexpr const char* kSimulateHelp =
    R"(Simulates the schedules that `run` executes. Nothing runs and nothing sleeps: each op takes a computed
time, and the same seed gives the same bytes. The files are those of `run`, so compare, sweep, report and
explain --from read them. `run`, `sweep` and `compare` simulate, too, where a profile says
device.backend = "virtual".

How fast ranks and links are
  --cluster NAME  a machine in profiles/clusters: GPUs, links and achieved rates, each with its source
  emulate.*       plain rates, as `run` emulates them
The step times of all ranks count. Of many ranks only trace.ranks are recorded, among them the first and the
slowest.

Examples
  fsdpbench simulate llama3-8b-emulated --ranks 1024
  fsdpbench simulate llama3-8b-emulated --ranks 64 --cluster dgx-h100
  fsdpbench simulate quickstart --ranks 8 --set simulate.jitter_pct=3
  fsdpbench simulate --hlo compiled.hlo.txt --cluster dgx-h100
)";

/// Options that run and simulate share, beside the profile.
void take_run_options(Command& command, RunArguments& run) {
  command.out(run.out, run.overwrite, "Result folder; default: runs/<profile>-<date-time>");
  command.ranks(run.overrides, "The same as --set mesh.ranks=N; must agree with a launcher's count");
}

/// NAME of --cluster NAME, which alone goes with --hlo.
std::string named_cluster(const std::vector<std::string>& overrides) {
  return overrides.back().substr(overrides.back().find('=') + 1);
}

}  // namespace

Command run_command() {
  const auto run = std::make_shared<RunArguments>();
  Command command("run", CommandGroup::measure, "Train and measure; write results, traces and config.toml", kRunHelp);
  command.profile(run->profile, run->overrides);
  take_run_options(command, *run);
  command.option("--resume", &run->resume, "DIR", "Continue from the newest checkpoint in DIR (docs/checkpoint.md)");
  command.runs_ranks = true;
  command.body = [run](const Call& call) { return run_profile(*run, call); };
  return command;
}

Command simulate_command() {
  struct SimulateArguments : RunArguments {
    std::string hlo;  ///< a compiled program of XLA instead of a profile
  };
  const auto simulate = std::make_shared<SimulateArguments>();
  Command command("simulate", CommandGroup::predict, "Predict what run would measure, for up to 1,048,576 ranks",
                  kSimulateHelp);
  command.profile(simulate->profile, simulate->overrides).is_required = false;
  command
      .option(
          "--hlo", &simulate->hlo, "FILE",
          "A program compiled by XLA instead (compiled.as_text(), a dump, an xplane.pb): what is hidden on --cluster")
      .without({"PROFILE", "--set", "--out", "--ranks"});
  command.cluster(simulate->overrides);
  take_run_options(command, *simulate);
  command.runs_ranks = true;
  command.check = [simulate] {
    if (simulate->profile.empty() == simulate->hlo.empty()) {
      throw ConfigError("simulate needs a PROFILE, or --hlo FILE; see fsdpbench simulate --help.");
    }
    if (!simulate->hlo.empty() && simulate->overrides.empty()) {
      throw ConfigError("--hlo needs --cluster NAME: a machine in profiles/clusters.");
    }
  };
  command.body = [simulate](const Call& call) {
    if (!simulate->hlo.empty()) {
      console().print(foreign::hlo_answer(simulate->hlo, named_cluster(simulate->overrides), false));
      return static_cast<int>(ExitCode::ok);
    }
    RunArguments run = *simulate;
    run.overrides.insert(run.overrides.begin(), "device.backend=virtual");
    return run_profile(run, call);
  };
  return command;
}

}  // namespace fsdpbench::app
