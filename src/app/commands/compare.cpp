#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/clock.h"
#include "base/digest.h"
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
#include "runs/progress.h"
#include "runs/result_file.h"
#include "runs/result_folder.h"
#include "runs/trial_log.h"

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
  if (!arguments.out.empty()) folder.emplace("compare", arguments.out, old_result(arguments));
  return report(arguments,
                compare_sides(std::move(a), std::move(b), simulated ? Evidence::simulated : Evidence::stored,
                              arguments.threshold / 100),
                folder ? &*folder : nullptr);
}

/// One side, ready to run.
struct Contender {
  const char* cell;  ///< its name in the log
  config::RunConfig config;
  ComparedSide side;
};

Contender load(const char* cell, const std::string& path, std::vector<std::string> overrides,
               const std::vector<std::string>& own, const Job* job) {
  overrides.insert(overrides.end(), own.begin(), own.end());
  Contender c{cell, {}, {}};
  std::vector<std::string> notes;
  c.config = load_config(config::find_profile(path), overrides, placement_of(job), &notes);
  for (std::string& note : config::validate(c.config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(fmt::format("{}: {}", path, note));
  c.side.name = path;
  for (const std::string& text : own) c.side.name += " --set " + text;
  c.side.config = config::to_json(c.config);
  return c;
}

bool is_simulated(const Contender& side) { return side.config.device.backend == config::BackendKind::virtual_; }

LogOwner owner_of_comparison(const Contender& a, const Contender& b) {
  const std::string all = config::to_toml(a.config) + "versus\n" + config::to_toml(b.config);
  return {"comparison", fmt::format("{:016x}", stable_hash(all)), {a.cell, b.cell}};
}

/// A and B in turns. What is finished is in the log at once, so that a comparison that was interrupted or killed can go
/// on. Only whole pairs count: trials of one pair ran next to each other, which is what makes them comparable, so a
/// pair that lacks a side is measured anew under a new number.
class ComparisonRun {
 public:
  ComparisonRun(Contender& a, Contender& b, const fs::path& folder, Job* job)
      : a_(a), b_(b), job_(job), path_(folder / "trials.jsonl"), log_(path_, owner_of_comparison(a, b)) {
    if (const std::string note = log_.torn_note(); !note.empty()) console().info(note);
    std::map<std::uint64_t, std::array<const Trial*, 2>> pairs;
    for (const LoggedTrial& logged : log_.trials()) {
      next_ = std::max(next_, logged.number + 1);
      if (logged.trial) pairs[logged.number][logged.cell == a.cell ? 0 : 1] = &*logged.trial;
    }
    for (const auto& [number, sides] : pairs) {
      if (sides[0] != nullptr && sides[1] != nullptr) keep(*sides[0], *sides[1]);
    }
    if (!log_.trials().empty()) console().info(fmt::format("going on: {} trials of each side are there", pairs_done()));
  }

  /// Runs until there are `trials` pairs. False if the user stopped it.
  bool run(int trials) {
    keep_what_is_done(console().quiet());
    const std::int64_t begin = now_ns();
    const int before = pairs_done();
    for (; pairs_done() < trials; ++next_) {
      std::string line = fmt::format("trial {} of {} of each side", pairs_done() + 1, trials);
      if (const int ran = pairs_done() - before; ran > 0) {
        const double passed = static_cast<double>(now_ns() - begin) * 1e-9;
        line += fmt::format("  {} left", format_duration(passed / ran * (trials - pairs_done())));
      }
      console().progress(line);
      try {
        run_pair();
      } catch (const Interrupted&) {
        console().clear_progress();
        return false;
      } catch (...) {
        console().clear_progress();
        if (!log_.trials().empty()) console().info(how_to_go_on());
        throw;
      }
    }
    console().clear_progress();
    return true;
  }

  std::string how_to_go_on() const {
    return fmt::format("{} keeps the finished trials; the same command with --out {} continues from there",
                       path_.string(), path_.parent_path().string());
  }

  /// Whether all trials come from one program and machine.
  bool one_world() const {
    const World& first = a_.side.trials.front().world;
    const auto same = [&](const Trial& trial) { return same_program_and_machine(trial.world, first); };
    return std::ranges::all_of(a_.side.trials, same) && std::ranges::all_of(b_.side.trials, same);
  }

 private:
  int pairs_done() const { return static_cast<int>(a_.side.trials.size()); }

  void keep(const Trial& a, const Trial& b) {
    a_.side.trials.push_back(a);
    b_.side.trials.push_back(b);
  }

  /// ABBA: what drifts slowly hits both sides alike, and neither is always second.
  void run_pair() {
    const bool a_first = next_ % 2 == 0;
    const Trial first = run_one(a_first ? a_ : b_);
    const Trial second = run_one(a_first ? b_ : a_);
    keep(a_first ? first : second, a_first ? second : first);
  }

  Trial run_one(const Contender& side) {
    if (interrupt_requested()) throw Interrupted();
    log_.append({.cell = side.cell, .number = next_, .trial = whole_trial(side.config, job_), .reason = {}});
    return *log_.trials().back().trial;
  }

  Contender& a_;
  Contender& b_;
  Job* job_;
  fs::path path_;
  TrialLog log_;
  std::uint64_t next_ = 0;  // number of the next pair
};

/// A folder that holds a comparison, finished or not, is gone on with; the log says whether it is the same one.
OldResult old_comparison(const CompareArguments& arguments) {
  const bool goes_on = !arguments.overwrite && kind_of_log(fs::path(arguments.out) / "trials.jsonl") == "comparison";
  return goes_on ? OldResult::keep : old_result(arguments);
}

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
  Contender a = load("a", arguments.a, arguments.overrides, arguments.a_overrides, job);
  Contender b =
      load("b", arguments.b.empty() ? arguments.a : arguments.b, arguments.overrides, arguments.b_overrides, job);
  const bool simulated = is_simulated(a) && is_simulated(b);
  if (a.config == b.config && !simulated) {
    console().info("A and B are the same configuration: this measures the noise (A/A).");
  }
  const ResultFolder folder("compare", arguments.out, old_comparison(arguments));
  ComparisonRun run(a, b, folder.path(), job);
  if (!run.run(simulated ? 1 : trials)) {
    console().warning(fmt::format("interrupted; {}", run.how_to_go_on()));
    return static_cast<int>(ExitCode::interrupted);
  }
  if (!run.one_world()) {
    console().warning("the trials come from different programs or machines; take their verdict with care");
  }
  return report(arguments,
                compare_sides(std::move(a.side), std::move(b.side),
                              simulated ? Evidence::simulated : Evidence::interleaved, arguments.threshold / 100),
                &folder);
}

constexpr const char* kCompareHelp =
    R"(A and B run in turns (A B, B A, A B, …), each time for a short run, so that anything else the machine does
meanwhile affects both alike. Whole runs are compared, not their steps: the median ratio with its 99 %
interval, and a verdict in words. Two simulations are computed once each and compared exactly.
The exit code is 0 whatever the verdict, or 7 for "slower" with --fail-if-slower.

compare.json gets all values and the keys that differ; trials.jsonl gets each finished run at once, so that the
same command with --out of that folder continues after a kill or Ctrl-C.
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
