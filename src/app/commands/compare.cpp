#include "app/commands/compare.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/console/progress.h"
#include "app/report/compare_report.h"
#include "app/report/explain_result.h"
#include "app/report/result_folder.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/validate.h"
#include "config/write.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// One side, ready to run.
struct Contender {
  config::RunConfig config;
  ComparedSide side;

  void run(Job* job) { side.trials.push_back(whole_trial(config, job)); }
};

/// What was compared is run again, so an unfinished run can be compared; but its user should know.
void note_unfinished(const fs::path& folder) {
  std::ifstream file(folder / "result.json");
  const nlohmann::json result = nlohmann::json::parse(file, nullptr, false);
  if (!result.is_object()) return;
  if (const std::string why = why_unfinished(result); !why.empty()) {
    console().info(fmt::format("{}: {}; its configuration runs again here", folder.string(), why));
  }
}

Contender load(const std::string& path, std::vector<std::string> overrides, const std::vector<std::string>& own,
               const Job* job) {
  overrides.insert(overrides.end(), own.begin(), own.end());
  Contender c;
  if (fs::is_directory(path)) note_unfinished(path);
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
  if (arguments.trials < metrics::kFewestTrials) {
    throw ConfigError(fmt::format(
        "--trials {} is too few: a difference between single runs may be luck, so at least {} trials a side are needed "
        "to tell one from the other (12 find 5 % on a machine with 1 % of noise).",
        arguments.trials, metrics::kFewestTrials));
  }
  Contender a = load(arguments.a, arguments.overrides, arguments.a_overrides, job);
  Contender b = load(arguments.b.empty() ? arguments.a : arguments.b, arguments.overrides, arguments.b_overrides, job);
  if (a.config == b.config) console().info("A and B are the same configuration: this measures the noise (A/A).");
  const ResultFolder folder("compare", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse);

  const std::int64_t begin = now_ns();
  for (int trial = 0; trial < arguments.trials; ++trial) {
    const double passed = static_cast<double>(now_ns() - begin) * 1e-9;
    std::string line = fmt::format("trial {} of {} of each side", trial + 1, arguments.trials);
    if (trial > 0) line += fmt::format("  {} left", format_duration(passed / trial * (arguments.trials - trial)));
    console().progress(line);
    // ABBA: what drifts slowly hits both sides alike, and neither is always second.
    (trial % 2 == 0 ? a : b).run(job);
    (trial % 2 == 0 ? b : a).run(job);
  }
  console().clear_progress();
  const double threshold = arguments.threshold / 100;
  const metrics::Comparison comparison = metrics::compare_samples(a.side.steps(), b.side.steps(), threshold);
  const fs::path path = folder.path() / "compare.json";
  console().print(compare_table(a.side, b.side, comparison, threshold) +
                  fmt::format("\ncomparison  {}\n", path.string()));
  write_file(path, json_text(compare_json(a.side, b.side, comparison, threshold)));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
