#include "app/commands/tune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/commands/calibrate.h"
#include "app/commands/export.h"
#include "app/commands/measure.h"
#include "app/commands/tune_traces.h"
#include "app/commands/verify_tuning.h"
#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "app/console/json_text.h"
#include "app/console/progress.h"
#include "app/experiment/cell.h"
#include "app/experiment/simulated_machine.h"
#include "app/report/finished_run.h"
#include "app/report/measured_machine.h"
#include "app/report/result_folder.h"
#include "app/report/tune_report.h"
#include "app/report/verification.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"
#include "dialects/make_export.h"
#include "metrics/compare.h"

namespace fsdpbench::app {
namespace {

template <class Enum>
Enum named(const char* option, const std::string& text, std::initializer_list<Enum> all) {
  std::vector<std::string_view> names;
  for (const Enum value : all) {
    names.push_back(tune::to_string(value));
    if (names.back() == text) return value;
  }
  throw ConfigError(fmt::format("{} {} is not valid; expected {}.", option, text, fmt::join(names, ", ")));
}

std::int64_t size_of_option(const char* option, const std::string& text) {
  const std::optional<std::int64_t> bytes = parse_bytes(text);
  if (bytes && *bytes > 0) return *bytes;
  throw ConfigError(fmt::format("{} {} is no size; expected bytes with a unit, as in 70GiB or 640MB.", option, text));
}

tune::MemoryBudget budget_of(const TuneArguments& arguments, const config::RunConfig& config) {
  using Kind = tune::MemoryKind;
  const Kind kind = named("--memory-kind", arguments.memory_kind, {Kind::live, Kind::reserved, Kind::process});
  const std::int64_t bytes = arguments.memory.empty() ? 0 : size_of_option("--memory", arguments.memory);
  tune::MemoryBudget budget = tune::memory_budget(config, bytes, kind);
  if (arguments.memory_error) {
    if (!(*arguments.memory_error >= 0 && *arguments.memory_error <= 100)) {
      throw ConfigError(
          fmt::format("--memory-error {} is no percentage; expected a number from 0 to 100.", *arguments.memory_error));
    }
    budget.error = *arguments.memory_error / 100;
  }
  if (!arguments.memory_overhead.empty()) {
    budget.context_bytes = size_of_option("--memory-overhead", arguments.memory_overhead);
    budget.communicator_bytes = 0;
    budget.overhead_error = 0;
  }
  return budget;
}

/// The keys of `fixes`; those with a value are overrides, too.
std::vector<std::string> fixed_keys(const std::vector<std::string>& fixes, std::vector<std::string>& overrides) {
  std::vector<std::string> keys;
  std::vector<config::Entry> given;
  for (const std::string& fix : fixes) {
    if (fix.find('=') == std::string::npos) {
      keys.push_back(fix);
      continue;
    }
    config::Entry entry = config::read_override(fix);
    for (const config::Entry& other : given) {
      if (other.name == entry.name && other.raw != entry.raw) {
        throw ConfigError(fmt::format("--fix {0}={1} and --fix {0}={2} contradict each other; leave one out.",
                                      entry.name, other.raw, entry.raw));
      }
    }
    keys.push_back(entry.name);
    given.push_back(std::move(entry));
    overrides.push_back(fix);
  }
  return keys;
}

/// A result may be given by its result.json, too.
std::string folder_of(const std::string& result) {
  const std::filesystem::path path(result);
  if (path.filename() != "result.json") return result;
  return path.parent_path().empty() ? "." : path.parent_path().string();
}

/// A traced job as files to tune from: its calibration, and the profile that names it, whose path is returned.
std::string write_recognised(TracedProfile& profile, const std::filesystem::path& folder) {
  const std::filesystem::path calibration = std::filesystem::absolute(folder / "calibration.toml");
  write_file(calibration, config::to_toml(profile.calibration));
  profile.config.simulate.calibration = calibration.string();
  const std::string path = (folder / "recognised.toml").string();
  write_file(path, profile_text(profile));
  return path;
}

/// The configuration in force. `recognised`: the profile of a traced job; empty: there is none.
config::RunConfig in_force(const TuneArguments& arguments, std::vector<std::string> overrides,
                           const std::string& recognised, Job* job) {
  const std::string profile = !recognised.empty()      ? recognised
                              : arguments.from.empty() ? config::find_profile(arguments.profile)
                                                       : config::find_profile(folder_of(arguments.from.front()));
  if (!arguments.cluster.empty()) {
    overrides.insert(overrides.begin(), "device.backend=virtual");
    overrides.push_back("simulate.cluster=" + arguments.cluster);
  }
  std::vector<std::string> notes;
  config::RunConfig config = load_config(profile, overrides, placement_of(job), &notes);
  for (std::string& note : config::validate(config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(note);
  return config;
}

/// Policies considered, and the best so far.
class TuneProgress {
 public:
  TuneProgress() : begin_ns_(now_ns()) {}
  ~TuneProgress() { console().clear_progress(); }
  TuneProgress(const TuneProgress&) = delete;
  TuneProgress& operator=(const TuneProgress&) = delete;

  void show(const tune::Space& space, const tune::SearchProgress& progress) {
    const std::int64_t now = now_ns();
    if (now < next_ns_) return;
    next_ns_ = now + (console().terminal() ? 100'000'000 : 2'000'000'000);
    std::string line = fmt::format("{}: {:.0f} of {:.0f} policies, {}", progress.doing, progress.considered,
                                   progress.all, format_duration(static_cast<double>(now - begin_ns_) * 1e-9));
    if (progress.best) {
      line +=
          fmt::format("  best {:.3f} ms: {}", progress.best->step_ns / 1e6, settings_of(space, progress.best->point));
    }
    console().progress(line);
  }
  double seconds() const { return static_cast<double>(now_ns() - begin_ns_) * 1e-9; }

 private:
  std::int64_t begin_ns_;
  std::int64_t next_ns_ = 0;
};

tune::SearchOptions search_options(const TuneArguments& arguments, const config::RunConfig& config) {
  using O = tune::Objective;
  tune::SearchOptions options;
  options.objective = named("--objective", arguments.objective, {O::step, O::memory, O::tokens_per_s});
  options.budget = budget_of(arguments, config);
  options.evaluations = arguments.evaluations;
  options.exhaustive = arguments.exhaustive;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.stop = interrupt_requested;
  return options;
}

[[noreturn]] void throw_nothing_fits(const tune::Space& space, const tune::Machine& machine,
                                     tune::SearchOptions options) {
  const tune::MemoryBudget budget = options.budget;
  options.objective = tune::Objective::memory;
  options.any_step = true;
  options.budget.bytes = 0;
  options.evaluations = std::min<std::int64_t>(options.evaluations, 2000);
  throw ConfigError(nothing_fits(space, budget, tune::search(space, machine, options)));
}

/// Where op times come from: a finished run, which must live on, or what the configuration names.
struct TunedOn {
  TunedOn(const TuneArguments& arguments, const config::RunConfig& config, std::optional<TracedJob>& traced) {
    if (arguments.from.empty()) {
      auto simulated = std::make_unique<SimulatedMachine>(config);
      basis = simulated->basis();
      machine = std::move(simulated);
      return;
    }
    run = std::make_unique<FinishedRun>(traced ? std::move(traced->run) : read_finished_run(arguments.from.front()));
    check_same(arguments, run->setup.config, config);
    machine = std::make_unique<MeasuredMachine>(*run);
    basis = fmt::format("the op times of {}", run->folder);
  }

  std::unique_ptr<FinishedRun> run;
  std::unique_ptr<tune::Machine> machine;
  std::string basis;

 private:
  /// What `--from` named must have been the same training, and of dtypes that were measured.
  static void check_same(const TuneArguments& arguments, const config::RunConfig& was,
                         const config::RunConfig& config) {
    const std::string& from = arguments.from.front();
    if (was.model != config.model || was.mesh.ranks != config.mesh.ranks || was.mesh.tensor != config.mesh.tensor) {
      throw ConfigError(
          fmt::format("--from {}: was another training: its model, mesh.ranks and mesh.tensor cannot be set.", from));
    }
    if (arguments.dtypes.empty() || was.emulate.compute_tflops) return;
    throw ConfigError(fmt::format(
        "--allow-dtypes does not go with --from {}: other kernels would run, whose times were not measured.", from));
  }
};

void check_verify(const TuneArguments& arguments, const config::RunConfig& config) {
  if (arguments.verify == 0) return;
  if (config.device.backend == config::BackendKind::virtual_) {
    throw ConfigError(
        "--verify runs policies for real, and device.backend = \"virtual\" has nowhere to; expected cpu or cuda.");
  }
  if (arguments.trials < metrics::kFewestTrials) {
    throw ConfigError(fmt::format("--trials {} is too few to tell a difference from luck; expected {} or more.",
                                  arguments.trials, metrics::kFewestTrials));
  }
}

/// Runs the best and calibrates by what they took.
Verification verify_best(const TuneArguments& arguments, Tuning& tuning, const ResultFolder& folder, Job* job) {
  const std::filesystem::path runs = folder.path() / "verified";
  Verification verification = verify_tuning(tuning, arguments.verify, arguments.trials, runs, job);
  console().clear_progress();
  tuning.verified = verification.chosen;
  console().print("\n" + verification_text(tuning, verification));
  CalibrateArguments calibrate{.runs = {},
                               .overrides = {},
                               .out = (folder.path() / "calibration.toml").string(),
                               .beside = {},
                               .overwrite = true};
  for (const auto& run : std::filesystem::directory_iterator(runs)) calibrate.runs.push_back(run.path().string());
  std::ranges::sort(calibrate.runs);
  console().print("\nwhat ops took in these runs, for simulate.calibration\n");
  calibrate_command(calibrate);
  return verification;
}

void write_answer(const ResultFolder& folder, const Tuning& tuning, const nlohmann::json& answer) {
  const std::filesystem::path& path = folder.path();
  write_file(path / "tuned.toml", config::to_toml(*tuning.space.config_at(tuning.proposed().point)));
  write_file(path / "tune.json", json_text(answer));
  write_file(path / "points.csv", points_csv(tuning));
}

void show_answer(const std::vector<std::string>& exports, const ResultFolder& folder) {
  const std::filesystem::path& path = folder.path();
  const std::string tuned = (path / "tuned.toml").string();
  console().print(fmt::format("\nprofile  {}\nanswer   {}\npoints   {}\n", tuned, (path / "tune.json").string(),
                              (path / "points.csv").string()));
  if (exports.empty()) return;
  export_command({.profile = tuned,
                  .overrides = {},
                  .to = fmt::format("{}", fmt::join(exports, ",")),
                  .out = path.string(),
                  .overwrite = true});
}

}  // namespace

int tune_command(const TuneArguments& arguments, Job* job) {
  std::vector<std::string> overrides = arguments.overrides, exports = arguments.exports;
  tune::SpaceOptions space_options{.fixed = fixed_keys(arguments.fixes, overrides), .dtypes = arguments.dtypes};
  if (!exports.empty()) dialects::read_export_targets(fmt::format("{}", fmt::join(exports, ",")));
  std::optional<TracedJob> traced;
  if (names_traces(arguments.from)) traced = read_traced_job(arguments.from);
  const std::string name = arguments.from.empty() ? arguments.profile : arguments.from.front();
  const ResultFolder folder("tune-" + config::profile_name(name), arguments.out,
                            arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  const std::string recognised = traced ? write_recognised(traced->profile, folder.path()) : "";
  const config::RunConfig config = in_force(arguments, overrides, recognised, job);
  check_verify(arguments, config);
  const tune::SearchOptions options = search_options(arguments, config);
  space_options.free_batch = options.objective == tune::Objective::tokens_per_s;
  if (traced) restrict_space(*traced, config, space_options);
  if (traced && traced->system != nullptr && exports.empty()) exports.emplace_back(traced->system->name);
  const tune::Space space(config, space_options);
  const TunedOn on(arguments, config, traced);

  const KeepingWhatIsDone keeping(console().quiet());
  TuneProgress progress;
  const tune::SearchResult result =
      tune::search(space, *on.machine, options, [&](const tune::SearchProgress& now) { progress.show(space, now); });
  console().clear_progress();
  if (!result.best) throw_nothing_fits(space, *on.machine, options);
  const double least_gain = arguments.least_gain_pct / 100;
  const tune::Answer answer = tune::make_answer(space, *on.machine, options, result, least_gain);
  Tuning tuning{space, options, result, answer, name, on.basis, least_gain, progress.seconds()};
  console().print(tune_text(tuning));
  if (traced) console().print(changes_text(*traced, tuning));
  const auto answer_json = [&] {
    nlohmann::json json = tune_json(tuning);
    if (traced) json["traced"] = changes_json(*traced, tuning);
    return json;
  };
  write_answer(folder, tuning, answer_json());  // what runs below may fail, or be ended
  if (arguments.verify > 0 && !result.stopped) {
    nlohmann::json verification = verification_json(tuning, verify_best(arguments, tuning, folder, job));
    nlohmann::json verified = answer_json();
    verified["verified"] = std::move(verification);
    write_answer(folder, tuning, verified);
  }
  show_answer(exports, folder);
  return static_cast<int>(result.stopped ? ExitCode::interrupted : ExitCode::ok);
}

}  // namespace fsdpbench::app
