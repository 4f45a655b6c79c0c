#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "config/find_file.h"
#include "config/validate.h"
#include "config/write.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/compare_report.h"
#include "runs/measure.h"
#include "runs/result_file.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench compare`.
struct CompareArguments {
  std::string a;                         ///< a run profile, a result folder, or a name: config::find_profile
  std::string b;                         ///< empty: the same as `a`
  std::vector<std::string> overrides;    ///< of both
  std::vector<std::string> a_overrides;  ///< of A only, after those of both
  std::vector<std::string> b_overrides;
  std::optional<int> trials;    ///< of each side; absent: 12 if there is anything to run
  double threshold = 1;         ///< in percent: smaller differences are of no interest
  bool rerun = false;           ///< run both even if both are results
  bool fail_if_slower = false;  ///< exit code 7 if B is slower
  std::string out;         ///< folder for compare.json; empty: runs/compare-<date-time> if anything runs, else none
  bool overwrite = false;  ///< replace a result that `out` holds
};

namespace fs = std::filesystem;

constexpr int kDefaultTrials = 12;

/// A result, if `given` is one: a folder with result.json, or that file.
bool is_result(const std::string& given) {
  const fs::path path(given);
  return path_exists(path / "result.json") || (path.filename() == "result.json" && path_exists(path));
}

/// Both sides as they are stored; absent, with a note, if one run did not finish.
std::optional<std::pair<ComparedSide, ComparedSide>> stored_sides(const CompareArguments& arguments) {
  std::vector<ComparedSide> sides;
  for (const std::string& given : {arguments.a, arguments.b}) {
    const ResultFile result = read_result(given);
    std::string why = why_unfinished(result);
    if (why.empty() && !result.content.contains("metrics")) why = "no measured step was completed";
    if (const auto diverged = result.content.find("diverged_because"); diverged != result.content.end()) {
      if (!diverged->is_string()) throw_damaged(result);
      throw Error(fmt::format("{}: training diverged: {}.", result.path, diverged->get<std::string>()),
                  ExitCode::diverged);
    }
    if (!why.empty()) {
      console().info(fmt::format("{}: {}; both configurations run here.", given, why));
      return std::nullopt;
    }
    sides.push_back(stored_side(given, result));
  }
  return std::pair(std::move(sides[0]), std::move(sides[1]));
}

/// Whether the command line leaves two results as they are.
bool wants_stored(const CompareArguments& arguments) {
  if (arguments.rerun || arguments.b.empty() || !is_result(arguments.a) || !is_result(arguments.b)) return false;
  const bool asks = arguments.trials || !arguments.overrides.empty() || !arguments.a_overrides.empty() ||
                    !arguments.b_overrides.empty();
  std::error_code error;
  return !asks && !fs::equivalent(arguments.a, arguments.b, error);
}

OldResult old_result(const CompareArguments& arguments) {
  return arguments.overwrite ? OldResult::overwrite : OldResult::refuse;
}

/// Says it, writes it if there is a folder, and decides.
int report(const CompareArguments& arguments, const Comparison& comparison, const ResultFolder* folder) {
  console().print(compare_table(comparison));
  if (folder != nullptr) {
    const fs::path path = folder->path() / "compare.json";
    console().print(fmt::format("\ncomparison  {}\n", path.string()));
    write_file(path, json_text(compare_json(comparison)));
  }
  const bool slower = arguments.fail_if_slower && comparison.difference.verdict == account::Verdict::slower;
  return static_cast<int>(slower ? ExitCode::slower : ExitCode::ok);
}

int compare_stored(const CompareArguments& arguments, ComparedSide a, ComparedSide b) {
  const std::size_t steps_a = a.steps().front().size(), steps_b = b.steps().front().size();
  const bool simulated = a.trials.front().world.simulated() && b.trials.front().world.simulated();
  if (const auto least = std::min(steps_a, steps_b); !simulated && std::cmp_less(least, account::kFewestTrials)) {
    throw ConfigError(
        fmt::format("{} has {} measured steps, and {} are needed to compare stored results; --rerun runs both "
                    "configurations in turns.",
                    steps_a < steps_b ? arguments.a : arguments.b, least, account::kFewestTrials));
  }
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty())
    folder.emplace("compare", arguments.out, old_result(arguments), std::vector<std::string>{arguments.a, arguments.b});
  return report(arguments,
                compare_sides(std::move(a), std::move(b), simulated ? Evidence::simulated : Evidence::stored,
                              arguments.threshold / 100),
                folder ? &*folder : nullptr);
}

/// One side, ready to run.
struct Contender {
  config::RunConfig config;
  ComparedSide side;
};

Contender load(const std::string& path, std::vector<std::string> overrides, const std::vector<std::string>& own,
               const Job* job) {
  overrides.insert(overrides.end(), own.begin(), own.end());
  Contender c;
  std::vector<std::string> notes;
  c.config = load_config(config::find_profile(path), overrides, placement_of(job), &notes);
  for (std::string& note : config::validate(c.config)) notes.push_back(std::move(note));
  if (c.config.checkpoint != config::Checkpointing{}) {
    notes.emplace_back("[checkpoint] has no effect: each trial begins anew, and saves nothing.");
  }
  for (const std::string& note : notes) console().info(fmt::format("{}: {}", path, note));
  c.side.name = path;
  for (const std::string& text : own) c.side.name += " --set " + text;
  c.side.config = config::to_json(c.config);
  return c;
}

bool is_simulated(const Contender& side) { return side.config.device.backend == config::BackendKind::virtual_; }

/// A and B in turns.
class ComparisonRun {
 public:
  ComparisonRun(Contender& a, Contender& b, Job* job) : a_(a), b_(b), job_(job) {}

  /// Runs until there are `trials` pairs. False if the user stopped it: then the pairs that are done count.
  bool run(int trials) {
    keep_what_is_done(console().quiet());
    bool finished = true;
    for (int pair = 0; pair < trials && finished; ++pair) {
      console().progress(fmt::format("trial {} of {} of each side", pair + 1, trials));
      try {
        run_pair(pair % 2 == 0);
      } catch (const Interrupted&) {
        finished = false;
      }
    }
    console().clear_progress();
    return finished;
  }

 private:
  /// ABBA: what drifts slowly hits both sides alike, and neither is always second.
  void run_pair(bool a_first) {
    Trial first = run_one(a_first ? a_ : b_);
    Trial second = run_one(a_first ? b_ : a_);
    a_.side.trials.push_back(std::move(a_first ? first : second));
    b_.side.trials.push_back(std::move(a_first ? second : first));
  }

  Trial run_one(const Contender& side) {
    if (interrupt_requested()) throw Interrupted();
    Trial trial = whole_trial(side.config, job_);
    trial.measurement = {};  // megabytes, of no use here
    return trial;
  }

  Contender& a_;
  Contender& b_;
  Job* job_;
};

/// Says which of A and B is faster. Two results of finished runs are compared as they are, if nothing of the command
/// line asks for runs; else both run in turns, and compare.json is written. Returns ExitCode::ok, or ExitCode::slower
/// if asked for. `job`: null, or the job whose rank 0 this is.
int compare_both(const CompareArguments& arguments, Job* job) {
  if (!(arguments.threshold >= 0 && arguments.threshold <= 100)) {
    throw ConfigError(
        fmt::format("--threshold {} is no percentage; expected a number from 0 to 100.", arguments.threshold));
  }
  const int trials = arguments.trials.value_or(kDefaultTrials);
  if (trials < account::kFewestTrials) {
    throw ConfigError(fmt::format(
        "--trials {} is too few: a difference between single runs may be luck, so at least {} trials a side are needed "
        "to tell one from the other (12 find 5 % on a machine with 1 % of noise).",
        trials, account::kFewestTrials));
  }
  if (wants_stored(arguments)) {
    if (auto sides = stored_sides(arguments))
      return compare_stored(arguments, std::move(sides->first), std::move(sides->second));
  }
  Contender a = load(arguments.a, arguments.overrides, arguments.a_overrides, job);
  Contender b = load(arguments.b.empty() ? arguments.a : arguments.b, arguments.overrides, arguments.b_overrides, job);
  const bool simulated = is_simulated(a) && is_simulated(b);
  if (a.config == b.config && !simulated) {
    console().info("A and B are the same configuration: this measures the noise (A/A).");
  }
  const ResultFolder folder("compare", arguments.out, old_result(arguments), {arguments.a, arguments.b});
  const bool finished = ComparisonRun(a, b, job).run(simulated ? 1 : trials);
  if (!finished) {
    console().warning(fmt::format("interrupted after {} of {} trials of each side", a.side.trials.size(), trials));
    if (std::cmp_less(a.side.trials.size(), account::kFewestTrials)) return static_cast<int>(ExitCode::interrupted);
  }
  const int code =
      report(arguments,
             compare_sides(std::move(a.side), std::move(b.side),
                           simulated ? Evidence::simulated : Evidence::interleaved, arguments.threshold / 100),
             &folder);
  return finished ? code : static_cast<int>(ExitCode::interrupted);
}

constexpr const char* kCompareHelp =
    R"(A and B run in turns (A B, B A, A B, …), each time for a short run, so that anything else the machine does
meanwhile affects both alike. Whole runs are compared, not their steps: the median ratio with its 99 %
interval, and a verdict in words. Two simulations are computed once each and compared exactly.
The exit code is 0 whatever the verdict, or 7 for "slower" with --fail-if-slower.

compare.json gets all values and the keys that differ; after Ctrl-C, of the pairs that are done.
Two results of finished runs are compared as they are, unless --rerun, --trials or a --set asks for new runs.
They did not take turns, so their verdict is about two runs, not about two configurations.

Examples
  fsdpbench compare quickstart --set emulate.compute_tflops=0.06 --b-set fsdp.backward_prefetch=none
  fsdpbench compare a.toml b.toml
  fsdpbench compare runs/monday runs/tuesday              (their results)
  fsdpbench compare runs/monday runs/tuesday --trials 20  (their config.toml, run again)
)";

}  // namespace

Command compare_command() {
  const auto compare = std::make_shared<CompareArguments>();
  Command command("compare", CommandGroup::measure, "Run two configurations in turns; say which is faster",
                  kCompareHelp);
  command.argument("A", &compare->a, "Run profile: file, result folder, or name");
  command.argument("B", &compare->b, "The other one; default: A, to compare it with itself or with --b-set")
      .is_required = false;
  command.set("-s,--set", compare->overrides, "Set one key on both sides; may be repeated");
  command.set("--a-set", compare->a_overrides, "Set one key of A");
  command.set("--b-set", compare->b_overrides, "Set one key of B");
  command.option("-n,--trials", &compare->trials, "N", "Runs of each side, 3 or more; default: 12");
  command.flag("--rerun", compare->rerun, "Run both again, even if both are results of finished runs");
  command.option("--threshold", &compare->threshold, "PERCENT", "Smaller differences do not matter; default: 1");
  command.flag("--fail-if-slower", compare->fail_if_slower, "Exit code 7 if B is slower");
  command.out(compare->out, compare->overwrite, "Folder for compare.json; default: runs/compare-<date-time>");
  command.runs_ranks = true;
  command.body = [compare](const Call& call) { return compare_both(*compare, call.job); };
  return command;
}

}  // namespace fsdpbench::app
