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

#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "app/console/json_text.h"
#include "app/console/progress.h"
#include "app/experiment/cell.h"
#include "app/experiment/simulated_machine.h"
#include "app/report/result_folder.h"
#include "app/report/tune_report.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"

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

/// The configuration in force.
config::RunConfig in_force(const TuneArguments& arguments, std::vector<std::string> overrides, Job* job) {
  if (!arguments.cluster.empty()) {
    overrides.insert(overrides.begin(), "device.backend=virtual");
    overrides.push_back("simulate.cluster=" + arguments.cluster);
  }
  std::vector<std::string> notes;
  config::RunConfig config = load_config(config::find_profile(arguments.profile), overrides, placement_of(job), &notes);
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

void write_tuning(const ResultFolder& folder, const Tuning& tuning) {
  const std::filesystem::path& path = folder.path();
  write_file(path / "tuned.toml", config::to_toml(*tuning.space.config_at(tuning.proposed().point)));
  write_file(path / "tune.json", json_text(tune_json(tuning)));
  write_file(path / "points.csv", points_csv(tuning));
  console().print(fmt::format("\nprofile  {}\nanswer   {}\npoints   {}\n", (path / "tuned.toml").string(),
                              (path / "tune.json").string(), (path / "points.csv").string()));
}

}  // namespace

int tune_command(const TuneArguments& arguments, Job* job) {
  std::vector<std::string> overrides = arguments.overrides;
  tune::SpaceOptions space_options{.fixed = fixed_keys(arguments.fixes, overrides), .dtypes = arguments.dtypes};
  const config::RunConfig config = in_force(arguments, overrides, job);
  const tune::SearchOptions options = search_options(arguments, config);
  space_options.free_batch = options.objective == tune::Objective::tokens_per_s;
  const tune::Space space(config, space_options);
  const SimulatedMachine machine(config);
  const ResultFolder folder("tune-" + config::profile_name(arguments.profile), arguments.out,
                            arguments.overwrite ? OldResult::overwrite : OldResult::refuse);

  const KeepingWhatIsDone keeping(console().quiet());
  TuneProgress progress;
  const tune::SearchResult result =
      tune::search(space, machine, options, [&](const tune::SearchProgress& now) { progress.show(space, now); });
  console().clear_progress();
  if (!result.best) throw_nothing_fits(space, machine, options);
  const double least_gain = arguments.least_gain_pct / 100;
  const tune::Answer answer = tune::make_answer(space, machine, options, result, least_gain);
  const Tuning tuning{space,      options,           result, answer, arguments.profile, machine.basis(),
                      least_gain, progress.seconds()};
  console().print(tune_text(tuning));
  write_tuning(folder, tuning);
  return static_cast<int>(result.stopped ? ExitCode::interrupted : ExitCode::ok);
}

}  // namespace fsdpbench::app
