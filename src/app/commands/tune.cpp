#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "account/judge.h"
#include "app/commands/command.h"
#include "app/commands/export.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "clock/caching_allocator.h"
#include "config/fields.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"
#include "dialects/dialect.h"
#include "dialects/make_export.h"
#include "dialects/sayable.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/traced_profile.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/assumptions.h"
#include "runs/cell.h"
#include "runs/finished_run.h"
#include "runs/measure.h"
#include "runs/result_folder.h"
#include "runs/simulated_machine.h"
#include "tune/run_doubt.h"
#include "tune/space.h"
#include "tune/tune_report.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// The command line of `fsdpbench tune`.
struct TuneArguments {
  std::string profile;                 ///< config::find_profile; empty with `from`
  std::vector<std::string> overrides;  ///< `key=value`
  std::string cluster;                 ///< as simulate.cluster, on the computed clock; empty: as the profile says
  /// A finished run whose op times are the machine, or the traces of another program's job; empty: a simulated machine.
  std::vector<std::string> from;
  std::string memory;                   ///< "70GiB"; empty: no limit
  std::string memory_kind = "process";  ///< live, reserved or process
  std::string objective = "step";       ///< step, memory or tokens_per_s
  std::vector<std::string> fixes;       ///< "key" or "key=value": is not turned
  bool any_engine = false;              ///< fsdp.preset may change
  std::vector<std::string> dtypes;      ///< that param_dtype and reduce_dtype may become
  std::int64_t evaluations = 20'000;    ///< policies whose step is computed, at most
  bool exhaustive = false;              ///< all of them
  std::uint64_t seed = 1;
  int threads = 2;
  double least_gain_pct = 1;  ///< gains below do not count
  int verify = 0;             ///< so many of the best run for real
  int trials = 3;             ///< of each in a round
  std::vector<std::string> exports;
  std::string out;
  bool overwrite = false;
};

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
  const bool has_unit = text.find_first_not_of("0123456789. ") != std::string::npos;
  if (bytes && *bytes > 0 && has_unit) return *bytes;
  throw ConfigError(fmt::format("{} {} is no size; expected bytes with a unit, as in 70GiB or 640MB.", option, text));
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

/// A job to be tuned, and the system in whose words that is answered; null: this program's own keys.
struct TracedJob {
  FinishedRun run;        ///< its rows as records of the schedule that it follows
  TracedProfile profile;  ///< the same for whoever wants to simulate it
  const dialects::Dialect* system = nullptr;
  TracedStep step;  ///< what a prediction may promise
};

std::vector<dialects::KeyChange> changes_of(const TracedJob& job, const Tuning& tuning) {
  const config::RunConfig& was = tuning.space.start();
  const config::RunConfig is = *tuning.space.config_at(tuning.proposed().point);
  if (job.system != nullptr) return dialects::changes_in_words(*job.system, was, is);
  std::vector<dialects::KeyChange> changes;
  for (const config::Field* field : dialects::exported_fields()) {
    if (field->write(was) == field->write(is)) continue;
    const auto text = [&](const config::RunConfig& config) { return config::to_toml(field->write(config)); };
    changes.push_back({field->name(), text(was), text(is), {dialects::Fate::same, ""}});
  }
  return changes;
}

/// As people write it: without a profile's quotes.
std::string plain(std::string value) {
  std::erase(value, '"');
  return value;
}

/// Whether `tune --from` names traces, not a finished run: several paths, a file that is no result.json, or a folder
/// of files that has neither a result nor a configuration.
bool names_traces(const std::vector<std::string>& from) {
  if (std::ranges::count(from, "") > 0) {
    throw ConfigError("--from '' names nothing; expected a result folder of `fsdpbench run`, or traces of a job.");
  }
  if (from.size() > 1) return true;
  if (from.empty()) return false;
  const fs::path path(from.front());
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.filename() != "result.json";
  if (!fs::is_directory(path, error)) return false;
  for (const char* name : {"result.json", "config.toml"}) {
    if (fs::exists(path / name, error)) return false;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite")) return true;
  }
  return false;
}

/// Reads the traces of a job. Throws ConfigError that says why it cannot be tuned from them: it is no sharded training,
/// follows no schedule that is known here, or follows that of several engines and nothing says which it is.
TracedJob read_traced_job(const std::vector<std::string>& traces) {
  const foreign::JobTrace job = foreign::read_job(traces);
  const foreign::Recognition found = foreign::recognise(job);
  const dialects::Dialect* system = dialects::dialect_of_program(found.engine);
  const bool named = system != nullptr || found.table.source == foreign::UnitSource::own_names;
  if (!named && found.schedule && !found.schedule->same_order.empty()) {
    throw ConfigError(
        fmt::format("{} may be of {}, or of {}: they launch collectives in the same order, and no name in the trace "
                    "says which it is.",
                    found.name, found.schedule->config.fsdp.preset, fmt::join(found.schedule->same_order, ", ")));
  }
  const foreign::Explanation explanation = foreign::explain(job, found);
  TracedJob traced;
  try {
    AdoptedJob adopted = adopt_job(job, found);
    if (!adopted.causes.no_typical_because.empty()) throw ConfigError(adopted.causes.no_typical_because + ".");
    traced = {{}, traced_profile(job, found, adopted), system, traced_step(explanation, adopted)};
    traced.run.folder = fmt::format("the traced {}", found.name);
    traced.run.setup = std::move(adopted.setup);
    traced.run.trial.metrics = std::move(adopted.metrics);
    if (!job.ranks.front().computes_on_host()) traced.run.trial.world.backend = "cuda";
    traced.run.traces = std::move(adopted.traces);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("It cannot be tuned from its trace. {}", error.what()));
  }
  if (const std::string why = held_up_because(job, explanation); !why.empty()) {
    throw ConfigError(fmt::format("No setting would help: {}", why));
  }
  return traced;
}

/// Changes to make in the traced program, setting by setting, and how well a replay of its op times has its step.
std::string changes_text(const TracedJob& job, const Tuning& tuning) {
  std::string text = "\n" + text_line(replay_error_sentence(job.step)) + text_line(dialects::kNotTold);
  const std::vector<dialects::KeyChange> changes = changes_of(job, tuning);
  if (changes.empty()) return text + fmt::format("nothing to change in {}\n", job.profile.program);
  Table table;
  table.title = fmt::format("what to change in {}", job.profile.program);
  table.header = {"fsdpbench's key", "is now", "becomes", "in its words"};
  if (job.system == nullptr) table.header.pop_back();
  for (const dialects::KeyChange& change : changes) {
    table.rows.push_back({change.key, plain(change.was), plain(change.is)});
    if (job.system != nullptr) table.rows.back().push_back(dialects::in_words(change.said));
  }
  return text + "\n" + format_table(table);
}

nlohmann::json changes_json(const TracedJob& job, const Tuning& tuning) {
  nlohmann::json out{{"program", job.profile.program},
                     {"step_ms", job.profile.step_ms},
                     {"miss", job.step.step_ms / job.step.replayed_ms - 1},
                     {"least_ms", job.step.least_ms},
                     {"changes", nlohmann::json::array()}};
  for (const dialects::KeyChange& change : changes_of(job, tuning)) {
    nlohmann::json one{{"key", change.key}, {"was", plain(change.was)}, {"is", plain(change.is)}};
    if (job.system != nullptr) one["words"] = dialects::in_words(change.said);
    out["changes"].push_back(std::move(one));
  }
  if (job.system != nullptr) out["system"] = job.system->name;
  return out;
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
                                                       : folder_of(arguments.from.front()) + "/config.toml";
  if (!path_exists(profile)) {
    throw ConfigError(fmt::format("--from {}: is neither a result folder of `fsdpbench run` nor traces of a job.",
                                  arguments.from.front()));
  }
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
    next_ns_ = now + (console().terminal() ? 100'000'000 : 10'000'000'000);  // a log is not to be filled
    std::string line = fmt::format("{}: {:.0f} of {:.0f} policies, {}", progress.doing, progress.considered,
                                   progress.all, format_duration(static_cast<double>(now - begin_ns_) * 1e-9));
    if (progress.best) {
      line += fmt::format("  best {:.3f} ms: {}", progress.best->step_ns / 1e6,
                          tune::settings_text(space.settings_at(progress.best->point)));
    }
    console().progress(line);
  }
  double seconds() const { return static_cast<double>(now_ns() - begin_ns_) * 1e-9; }

 private:
  std::int64_t begin_ns_;
  std::int64_t next_ns_ = 0;
};

tune::SearchOptions search_options(const TuneArguments& arguments, const config::RunConfig& config,
                                   const std::optional<TracedJob>& traced) {
  using O = tune::Objective;
  using K = tune::MemoryKind;
  tune::SearchOptions options;
  options.objective = named("--objective", arguments.objective, {O::step, O::memory, O::tokens_per_s});
  const bool of_gpu = arguments.memory.empty() && !config.simulate.cluster.empty();
  const std::int64_t bytes = of_gpu ? config::load_cluster(config.simulate.cluster).gpu.memory_bytes()
                             : arguments.memory.empty() ? 0
                                                        : size_of_option("--memory", arguments.memory);
  options.budget = tune::memory_budget(
      config, bytes, named("--memory-kind", arguments.memory_kind, {K::live, K::reserved, K::process}),
      traced ? std::optional(traced->run.trial.world.backend == "cuda") : std::nullopt);
  options.budget.of_gpu = of_gpu;
  options.evaluations = arguments.evaluations;
  options.exhaustive = arguments.exhaustive;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.stop = interrupt_requested;
  return options;
}

/// The least budget, above one that is too small, in which an allocator that returns its cache holds the training.
std::int64_t squeezed_bytes(const schedule::Training& training, tune::MemoryBudget budget) {
  if (!budget.need_of) return 0;
  const auto fits = [&](std::int64_t bytes) {
    budget.bytes = bytes;
    return budget.fits(budget.need_of(training, budget.capacity(training.plan)), training.plan);
  };
  const tune::MemoryNeed most = budget.need_of(training, 0);
  std::int64_t low = budget.bytes, high = budget.predicted(most, training.plan) + budget.margin(most, training.plan);
  for (constexpr std::int64_t kNear = 1 << 26; high - low > kNear;) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

[[noreturn]] void throw_nothing_fits(const tune::Space& space, const clock::Machine& machine,
                                     tune::SearchOptions options) {
  const tune::MemoryBudget budget = options.budget;
  options.objective = tune::Objective::memory;
  options.any_step = true;
  options.budget.bytes = 0;
  options.evaluations = std::min<std::int64_t>(options.evaluations, 2000);
  throw ConfigError(nothing_fits(space, budget, tune::search(space, machine, options),
                                 squeezed_bytes(machine.training(space.start()), budget)));
}

/// Source of op times: what the configuration names, a finished run, which must live on, or what simulated it.
struct TunedOn {
  TunedOn(const TuneArguments& arguments, const config::RunConfig& config, std::optional<TracedJob>& traced) {
    std::unique_ptr<SimulatedMachine> simulated;
    if (arguments.from.empty()) {
      simulated = std::make_unique<SimulatedMachine>(config);
      basis = simulated->basis();
    } else {
      run = std::make_unique<FinishedRun>(traced ? std::move(traced->run) : read_finished_run(arguments.from.front()));
      check_same(arguments, run->setup.config, config);
      if (!traced) simulated = machine_of_run(config);
      const std::string why = simulated ? changed_since(*run, *simulated) : "";
      if (!why.empty()) console().warning(why);
      basis = simulated ? fmt::format("the machine of {}: {}", run->folder, simulated->basis())
                        : fmt::format("the op times of {}", run->folder);
    }
    if (!simulated) {
      machine = std::make_unique<MeasuredMachine>(*run);
      return;
    }
    if (simulated->cluster() != nullptr) {
      need_of = [&on = *simulated](const schedule::Training& training, std::int64_t capacity) {
        const auto needs = clock::allocator_forecast(training, on.times(training, false).times, capacity);
        return tune::MemoryNeed{needs.peak_allocated, needs.peak_reserved};
      };
    }
    machine = std::move(simulated);
  }

  std::unique_ptr<FinishedRun> run;
  std::unique_ptr<clock::Machine> machine;
  std::string basis;
  tune::NeedOf need_of;  ///< on a cluster: memory under PyTorch's allocator

 private:
  /// Throws unless the runs that `--from` named were the same training, with dtypes that were measured.
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
  if (arguments.trials < account::kFewestTrials) {
    throw ConfigError(fmt::format("--trials {} is too few to tell a difference from luck; expected {} or more.",
                                  arguments.trials, account::kFewestTrials));
  }
}

/// Runs the configuration in force, the same once more, and the best policies that fit, in rounds of `trials` trials
/// each, in turns. After each round the slower half of the policies leaves; the last one is chosen if it is faster than
/// what is in force for certain. The last trial of each is kept in `folder`/1, 2, … with its traces. A policy that
/// fails leaves with its reason. `job`: null, or the job whose rank 0 this is.
class Verifier {
 public:
  Verifier(const Tuning& tuning, int trials, std::filesystem::path folder, Job* job)
      : tuning_(tuning), trials_(trials), folder_(std::move(folder)), job_(job) {}

  Verification verify(int count) {
    result_.in_force = result_.control = policy_of(0);
    for (const std::size_t tried : best_ones(count)) result_.proposals.push_back(policy_of(tried));
    std::vector<VerifiedPolicy*> alive;
    for (VerifiedPolicy& proposal : result_.proposals) alive.push_back(&proposal);
    for (int round = 1; !alive.empty(); ++round) {
      run_round(round, alive);
      std::erase_if(alive, [](const VerifiedPolicy* policy) { return !policy->failed.empty(); });
      if (alive.size() <= 1) break;
      std::ranges::stable_sort(alive, {}, [](const VerifiedPolicy* policy) { return policy->median_ms(); });
      alive.resize((alive.size() + 1) / 2);
    }
    compare(result_.control);
    for (VerifiedPolicy& proposal : result_.proposals) compare(proposal);
    if (!alive.empty() && alive.front()->against && alive.front()->against->verdict == account::Verdict::faster) {
      result_.chosen = alive.front()->tried;
    }
    return std::move(result_);
  }

 private:
  VerifiedPolicy policy_of(std::size_t index) const {
    const tune::Tried& tried = tuning_.result.tried[index];
    return {index, tuning_.space.settings_at(tried.point), tried.step_ns / 1e6, tried.need.live};
  }

  /// Each schedule once, without the one in force; only those whose memory is known.
  std::vector<std::size_t> best_ones(int count) const {
    const std::vector<tune::Tried>& tried = tuning_.result.tried;
    std::vector<std::size_t> order(tried.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {},
                             [&](std::size_t i) { return objective_of(tuning_.options.objective, tried[i]); });
    std::set<std::uint64_t> seen{tried.front().fingerprint};
    std::vector<std::size_t> chosen;
    for (const std::size_t i : order) {
      if (static_cast<int>(chosen.size()) == count) break;
      if (tried[i].fits && tried[i].exact && seen.insert(tried[i].fingerprint).second) chosen.push_back(i);
    }
    return chosen;
  }

  void run_round(int round, const std::vector<VerifiedPolicy*>& alive) {
    std::vector<VerifiedPolicy*> turns{&result_.in_force};
    turns.insert(turns.end(), alive.begin(), alive.end());
    turns.push_back(&result_.control);
    for (int trial = 0; trial < trials_; ++trial) {
      // Forth and back: what drifts slowly hits all alike.
      if (trial > 0) std::ranges::reverse(turns);
      for (VerifiedPolicy* policy : turns) {
        if (policy->failed.empty()) run_one(round, trial, *policy);
      }
    }
  }

  void run_one(int round, int trial, VerifiedPolicy& policy) {
    if (interrupt_requested()) throw Interrupted();
    const config::RunConfig config = *tuning_.space.config_at(tuning_.result.tried[policy.tried].point);
    console().progress(fmt::format("verifying: round {}, trial {} of {}: {}", round, trial + 1, trials_,
                                   tune::settings_text(policy.settings)));
    const bool proposal = &policy != &result_.in_force && &policy != &result_.control;
    std::filesystem::path keep;
    if (proposal) keep = folder_ / fmt::format("{}", &policy - result_.proposals.data() + 1);
    if (&policy == &result_.in_force) keep = folder_ / "in-force";
    try {
      const Trial measured = whole_trial(config, job_, trial + 1 == trials_ ? keep : std::filesystem::path());
      policy.trials_ms.push_back(measured.metrics->steps_ms);
      policy.live_bytes = std::max(policy.live_bytes, measured.memory.peak_occupied_total);
    } catch (const Error& error) {
      const ExitCode code = error.code();
      // The configuration in force must run, and being stopped or a full disk is no fault of a policy.
      if (!proposal || code == ExitCode::interrupted || code == ExitCode::cannot_write) throw;
      policy.failed = error.what();
      console().warning(fmt::format("a policy failed: {}", error.what()));
    }
  }

  void compare(VerifiedPolicy& policy) const {
    const std::size_t pairs = std::min(policy.trials_ms.size(), result_.in_force.trials_ms.size());
    if (pairs < account::kFewestTrials) return;
    const auto first = [&](const VerifiedPolicy& side) { return std::span(side.trials_ms).first(pairs); };
    policy.against = account::judge_in_turns(first(result_.in_force), first(policy), tuning_.least_gain);
  }

  const Tuning& tuning_;
  int trials_;
  std::filesystem::path folder_;
  Job* job_;
  Verification result_;
};

/// Runs the best and calibrates by what they took.
void verify_best(const TuneArguments& arguments, Tuning& tuning, const ResultFolder& folder, Job* job) {
  const std::filesystem::path runs = folder.path() / "verified";
  tuning.verification = Verifier(tuning, arguments.trials, runs, job).verify(arguments.verify);
  console().clear_progress();
  console().print("\n" + verification_text(*tuning.verification));
  CalibrateArguments calibrate{.runs = {},
                               .overrides = {},
                               .out = (folder.path() / "calibration.toml").string(),
                               .beside = {},
                               .overwrite = true};
  for (const auto& run : std::filesystem::directory_iterator(runs)) calibrate.runs.push_back(run.path().string());
  std::ranges::sort(calibrate.runs);
  console().print("\nwhat ops took in these runs, for simulate.calibration\n");
  calibrate_runs(calibrate);
}

void write_answer(const ResultFolder& folder, const Tuning& tuning, const std::optional<TracedJob>& traced) {
  const std::filesystem::path& path = folder.path();
  nlohmann::json answer = fields<Tuning>().write(tuning);
  if (traced) answer["traced"] = changes_json(*traced, tuning);
  write_file(path / "tuned.toml", (traced ? fmt::format("# {}\n", dialects::kNotTold) : "") +
                                      config::to_toml(*tuning.space.config_at(tuning.proposed().point)));
  write_file(path / "tune.json", json_text(answer));
  write_file(path / "points.csv", points_csv(tuning));
}

void show_answer(const std::vector<std::string>& exports, const ResultFolder& folder, bool traced) {
  const std::filesystem::path& path = folder.path();
  const std::string tuned = (path / "tuned.toml").string();
  console().print(fmt::format("\nprofile  {}\nanswer   {}\npoints   {}\n", tuned, (path / "tune.json").string(),
                              (path / "points.csv").string()));
  if (exports.empty()) return;
  write_exports({.profile = tuned,
                 .overrides = {},
                 .to = fmt::format("{}", fmt::join(exports, ",")),
                 .out = path.string(),
                 .overwrite = true,
                 .traced = traced});
}

/// Activations and the work of a sequence are not in a trace, so what trades them is not turned. Nor is it told whether
/// the head has the embedding's weight, which cannot then be in another unit. Another engine would be another program.
constexpr const char* kNotTraced[]{"fsdp.preset",           "fsdp.head_unit",       "fsdp.activation_checkpointing",
                                   "fsdp.checkpoint_every", "train.batch_per_rank", "train.accumulate"};

/// Tells whether all of these systems have words for a configuration. `splits`: the training program may split
/// experts otherwise, which is its own code's to say, whatever engine it calls.
std::function<bool(const config::RunConfig&)> said_by(const std::vector<const dialects::Dialect*>& targets,
                                                      const config::RunConfig& in_force, bool splits) {
  std::vector<dialects::Sayable> systems;
  for (const dialects::Dialect* target : targets) systems.emplace_back(*target, in_force);
  return [=, systems = std::move(systems), own = in_force.mesh](const config::RunConfig& turned) {
    config::Mesh mesh = turned.mesh;  // but for the ranks that share a shard, or a copy, which FSDP is told
    mesh.shard = own.shard, mesh.replicate = own.replicate;
    if (splits && mesh != own) return true;
    return std::ranges::all_of(systems, [&](const dialects::Sayable& system) { return system.says(turned); });
  };
}

/// Finds the settings of a training that are best on a machine under a memory budget, says what each is worth, and
/// writes them as a profile. Nothing runs but what --verify asks for. Returns the process exit code. `job`: null, or
/// the job whose rank 0 this is, which verifies.
int tune_profile(const TuneArguments& arguments, Job* job) {
  std::vector<std::string> overrides = arguments.overrides, exports = arguments.exports;
  tune::SpaceOptions space_options{.fixed = fixed_keys(arguments.fixes, overrides),
                                   .dtypes = arguments.dtypes,
                                   .any_engine = arguments.any_engine,
                                   .computed = !arguments.cluster.empty()};
  std::vector<const dialects::Dialect*> targets;
  if (!exports.empty()) targets = dialects::read_export_targets(fmt::format("{}", fmt::join(exports, ",")));
  std::optional<TracedJob> traced;
  if (names_traces(arguments.from)) traced = read_traced_job(arguments.from);
  const std::string name = arguments.from.empty() ? arguments.profile : arguments.from.front();
  std::vector<std::string> reads = arguments.from;
  if (!arguments.profile.empty()) reads.push_back(config::find_profile(arguments.profile));
  const ResultFolder folder("tune-" + config::profile_name(name), arguments.out,
                            arguments.overwrite ? OldResult::overwrite : OldResult::refuse, reads);
  const std::string recognised = traced ? write_recognised(traced->profile, folder.path()) : "";
  const config::RunConfig config = in_force(arguments, overrides, recognised, job);
  check_verify(arguments, config);
  tune::SearchOptions options = search_options(arguments, config, traced);
  space_options.free_batch = options.objective == tune::Objective::tokens_per_s;
  const bool by_preset = targets.empty() && !traced;
  if (traced) {
    space_options.fixed.insert(space_options.fixed.end(), std::begin(kNotTraced), std::end(kNotTraced));
    targets = {traced->system};
  } else if (by_preset && !arguments.any_engine) {
    targets = {dialects::dialect_of(config)};
  }
  std::erase(targets, nullptr);
  space_options.offers = said_by(targets, config, by_preset);
  if (traced && traced->system != nullptr && exports.empty()) exports.emplace_back(traced->system->name);
  const tune::Space space(config, space_options);
  const TunedOn on(arguments, config, traced);
  options.budget.need_of = on.need_of;

  keep_what_is_done(console().quiet());
  TuneProgress progress;
  tune::SearchResult result =
      tune::search(space, *on.machine, options, [&](const tune::SearchProgress& now) { progress.show(space, now); });
  console().clear_progress();
  if (!result.best) throw_nothing_fits(space, *on.machine, options);
  const double least_gain = arguments.least_gain_pct / 100;
  tune::Answer answer = tune::make_answer(space, *on.machine, options, result, least_gain);
  if (traced) {
    count_from_trace(traced->step, result);
    count_from_trace(traced->step, answer);
  }
  Tuning tuning{space, options, result, answer, name, on.basis, least_gain, progress.seconds()};
  if (on.run) tuning.disturbed_because = why_disturbed(*on.run);
  console().print(tune_text(tuning));
  if (!config.simulate.cluster.empty() && arguments.from.empty()) {
    console().print(assumptions_text(assumptions_of(config, config::find_profile(arguments.profile), overrides)));
  }
  if (traced) console().print(changes_text(*traced, tuning));
  write_answer(folder, tuning, traced);  // what runs below may fail, or be ended
  if (arguments.verify > 0 && !result.stopped) {
    verify_best(arguments, tuning, folder, job);
    write_answer(folder, tuning, traced);
  }
  show_answer(exports, folder, traced.has_value());
  return static_cast<int>(result.stopped ? ExitCode::interrupted : ExitCode::ok);
}

constexpr const char* kTuneHelp =
    R"(Turns strategy and mesh, resharding, wrapping, activation checkpointing, micro-batches at the same global batch,
prefetching, limits of all-gathers and reduce-scatters, and communicators: what the profile's engine, or the systems of
--export, have words for; with --any-engine also anything else, and the presets of other engines. Numerics stay as they are unless an option allows that they change.
Every policy is simulated, with the op times of --cluster, of a calibration, of emulated rates or of --from RESULT; bounds exclude
policies that cannot be better. Nothing is proposed whose predicted memory is within its error of the budget.

--from TRACE… reads files of torch.profiler, one for each rank, or their folder: it recognises the job, uses its op
times, and says what to change in that program's terms.

Memory of a rank: live is blocks in use, reserved what the allocator holds, process that and what libraries and
communicators take. DIR gets tuned.toml, a profile for `run`; tune.json and points.csv, every policy that was simulated.

Examples
  fsdpbench tune llama3-8b-emulated --memory 70GiB
  fsdpbench tune llama3-8b-emulated --cluster dgx-h100 --memory 72GiB --memory-kind process
  fsdpbench tune --from runs/first --fix fsdp.strategy
  fsdpbench tune --from traces/ --memory 70GiB
  fsdpbench tune llama3-8b-emulated --memory 30GiB --verify 4 --export pytorch-fsdp2
)";

}  // namespace

Command tune_command() {
  const auto tune_it = std::make_shared<TuneArguments>();
  Command command("tune", CommandGroup::predict, "Find the settings for a model, machine and memory budget", kTuneHelp);
  command.profile(tune_it->profile, tune_it->overrides).is_required = false;
  command
      .option("--from", &tune_it->from, "RESULT|TRACE",
              "A finished run, or traces of another program's job, instead of PROFILE")
      .without({"PROFILE", "--cluster"});
  command.option("-c,--cluster", &tune_it->cluster, "NAME",
                 "Simulate this machine, as --set simulate.cluster=NAME does");
  command.ranks(tune_it->overrides);
  command.option("-m,--memory", &tune_it->memory, "SIZE",
                 "What a rank may take, as in 70GiB; default: its GPU on a cluster, else no limit");
  command.option("--memory-kind", &tune_it->memory_kind, "KIND", "live, reserved or process; default: process");
  command.option("--objective", &tune_it->objective, "WHAT", "step, memory or tokens_per_s; default: step");
  command.set("--fix", tune_it->fixes, "Leave KEY as it is, or at VALUE; may be repeated");
  command.flag("--any-engine", tune_it->any_engine, "Other engines' presets, too, not only the profile's engine");
  command
      .option("--allow-dtypes", &tune_it->dtypes, "DTYPE,…",
              "Dtypes that param_dtype and reduce_dtype may become: bf16")
      .list();
  command.option("--evaluations", &tune_it->evaluations, "N", "Policies to simulate at most; default: 20000")
      .within(1, std::int64_t{1} << 40);
  command.flag("--exhaustive", tune_it->exhaustive, "Simulate every policy, without bounds");
  command.option("--seed", &tune_it->seed, "N", "Seed for the order in which policies are tried; default: 1");
  command.option("--threads", &tune_it->threads, "N", "Threads for the search; default: 2").within(1, 256);
  command.option("--least-gain", &tune_it->least_gain_pct, "PERCENT", "Smaller gains do not count; default: 1")
      .within(0, 100);
  command.option("--verify", &tune_it->verify, "N", "Run the N best for real, in turns with the present configuration")
      .within(0, 1000);
  command.option("--trials", &tune_it->trials, "N", "Runs of each in a round of --verify; default: 3");
  command.option("--export", &tune_it->exports, "NAME,…", "Write the answer for other systems, too: pytorch-fsdp2")
      .list();
  command.out(tune_it->out, tune_it->overwrite, "Folder; default: runs/tune-<profile>-<date-time>");
  command.runs_ranks = true;
  command.check = [tune_it] {
    if (!tune_it->profile.empty() || !tune_it->from.empty()) return;
    throw ConfigError("tune needs a PROFILE, or --from RESULT or TRACE; see fsdpbench tune --help.");
  };
  command.body = [tune_it](const Call& call) { return tune_profile(*tune_it, call.job); };
  return command;
}

}  // namespace fsdpbench::app
