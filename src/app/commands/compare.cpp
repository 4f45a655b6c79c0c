#include "app/commands/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/console/progress.h"
#include "app/report/compare_report.h"
#include "app/report/result_file.h"
#include "app/report/result_folder.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/paths.h"
#include "config/find_file.h"
#include "config/validate.h"
#include "config/write.h"

namespace fsdpbench::app {
namespace {

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

void write_comparison(const ResultFolder& folder, const nlohmann::json& content) {
  const fs::path path = folder.path() / "compare.json";
  console().print(fmt::format("\ncomparison  {}\n", path.string()));
  write_file(path, json_text(content));
}

int exit_code(const CompareArguments& arguments, const metrics::Comparison& comparison) {
  const bool slower = arguments.fail_if_slower && comparison.verdict == metrics::Verdict::slower;
  return static_cast<int>(slower ? ExitCode::slower : ExitCode::ok);
}

int compare_stored(const CompareArguments& arguments, const ComparedSide& a, const ComparedSide& b) {
  const std::vector<double> steps_a = a.steps().front(), steps_b = b.steps().front();
  if (const auto least = std::min(steps_a.size(), steps_b.size()); std::cmp_less(least, metrics::kFewestTrials)) {
    throw ConfigError(
        fmt::format("{} has {} measured steps, and {} are needed to compare stored results; --rerun runs both "
                    "configurations in turns.",
                    steps_a.size() < steps_b.size() ? arguments.a : arguments.b, least, metrics::kFewestTrials));
  }
  const double threshold = arguments.threshold / 100;
  const metrics::Comparison comparison = metrics::compare_runs(steps_a, steps_b, threshold);
  console().print(compare_table(a, b, comparison, threshold, Evidence::stored));
  if (!arguments.out.empty()) {
    const ResultFolder folder("compare", arguments.out, old_result(arguments));
    write_comparison(folder, compare_json(a, b, comparison, threshold, Evidence::stored));
  }
  return exit_code(arguments, comparison);
}

/// One side, ready to run.
struct Contender {
  config::RunConfig config;
  ComparedSide side;

  void run(Job* job) { side.trials.push_back(whole_trial(config, job)); }
};

Contender load(const std::string& path, std::vector<std::string> overrides, const std::vector<std::string>& own,
               const Job* job) {
  overrides.insert(overrides.end(), own.begin(), own.end());
  Contender c;
  std::vector<std::string> notes;
  c.config = load_config(config::find_profile(path), overrides, placement_of(job), &notes);
  for (std::string& note : config::validate(c.config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(fmt::format("{}: {}", path, note));
  c.side.name = path;
  for (const std::string& text : own) c.side.name += " --set " + text;
  c.side.config = config::to_json(c.config);
  return c;
}

}  // namespace

int compare_command(const CompareArguments& arguments, Job* job) {
  if (!(arguments.threshold >= 0 && arguments.threshold <= 100)) {
    throw ConfigError(
        fmt::format("--threshold {} is no percentage; expected a number from 0 to 100.", arguments.threshold));
  }
  const int trials = arguments.trials.value_or(kDefaultTrials);
  if (trials < metrics::kFewestTrials) {
    throw ConfigError(fmt::format(
        "--trials {} is too few: a difference between single runs may be luck, so at least {} trials a side are needed "
        "to tell one from the other (12 find 5 % on a machine with 1 % of noise).",
        trials, metrics::kFewestTrials));
  }
  if (wants_stored(arguments)) {
    if (const auto sides = stored_sides(arguments)) return compare_stored(arguments, sides->first, sides->second);
  }
  Contender a = load(arguments.a, arguments.overrides, arguments.a_overrides, job);
  Contender b = load(arguments.b.empty() ? arguments.a : arguments.b, arguments.overrides, arguments.b_overrides, job);
  if (a.config == b.config) console().info("A and B are the same configuration: this measures the noise (A/A).");
  const ResultFolder folder("compare", arguments.out, old_result(arguments));

  const std::int64_t begin = now_ns();
  for (int trial = 0; trial < trials; ++trial) {
    const double passed = static_cast<double>(now_ns() - begin) * 1e-9;
    std::string line = fmt::format("trial {} of {} of each side", trial + 1, trials);
    if (trial > 0) line += fmt::format("  {} left", format_duration(passed / trial * (trials - trial)));
    console().progress(line);
    // ABBA: what drifts slowly hits both sides alike, and neither is always second.
    (trial % 2 == 0 ? a : b).run(job);
    (trial % 2 == 0 ? b : a).run(job);
  }
  console().clear_progress();
  const double threshold = arguments.threshold / 100;
  const metrics::Comparison comparison = metrics::compare_samples(a.side.steps(), b.side.steps(), threshold);
  console().print(compare_table(a.side, b.side, comparison, threshold, Evidence::interleaved));
  write_comparison(folder, compare_json(a.side, b.side, comparison, threshold, Evidence::interleaved));
  return exit_code(arguments, comparison);
}

}  // namespace fsdpbench::app
