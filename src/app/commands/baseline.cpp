#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "accept/gate/baseline_file.h"
#include "app/commands/command.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "record/console.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench baseline`.
struct BaselineArguments {
  std::vector<std::string> names;  ///< add: results; show: baselines
  std::string in;                  ///< folder of the baselines; empty: baselines/
  std::string anyway;              ///< add: why to keep what was not accepted; empty: it is refused
};

namespace fs = std::filesystem;

void add(const fs::path& folder, const std::string& given, const std::string& anyway) {
  GatedResult result = read_gated_result(given);
  if (!result.not_accepted_because.empty()) result.kept_anyway_because = anyway;
  const Baseline baseline = add_to_baseline(folder, std::move(result));
  const std::size_t count = baseline.results.size();
  console().print(fmt::format("{}: {} {}, {}\n", baseline.path.string(), count, count == 1 ? "result" : "results",
                              baseline.results.front().machine.summary()));
}

fs::path baseline_folder(const BaselineArguments& arguments) {
  return arguments.in.empty() ? kBaselineFolder : arguments.in;
}

int add_results(const BaselineArguments& arguments) {
  for (const std::string& given : arguments.names) add(baseline_folder(arguments), given, arguments.anyway);
  return static_cast<int>(ExitCode::ok);
}

int list_baselines(const BaselineArguments& arguments) {
  const std::vector<Baseline> all = read_baselines(baseline_folder(arguments));
  if (all.empty()) {
    throw ConfigError(fmt::format("{}: holds no baseline; `fsdpbench baseline add RESULT` makes one.",
                                  baseline_folder(arguments).string()));
  }
  console().print(baselines_table(all));
  return static_cast<int>(ExitCode::ok);
}

int show_baselines(const BaselineArguments& arguments) {
  for (const std::string& given : arguments.names) {
    const fs::path named = baseline_folder(arguments) / (given + ".json");
    console().print(baseline_text(read_baseline(path_exists(named) ? named : fs::path(given))));
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kBaselineHelp =
    R"(A baseline is a file of accepted results of one machine that measured the same. Only what passed is taken: an
acceptance whose verdict is pass, or a run or sweep that is complete and rated. From three results on, `gate` knows how
much results of this machine scatter; a result with a figure far off the others is left out of that figure, and named.

Examples
  fsdpbench baseline add runs/accept-monday
  fsdpbench baseline add runs/accept-* --in /shared/baselines
  fsdpbench baseline add runs/odd --anyway "no reference for this fabric yet"
)";

Option& take_folder(Command& command, BaselineArguments& baseline) {
  return command.option("--in", &baseline.in, "DIR", "Folder of the baselines; default: baselines");
}

}  // namespace

Command baseline_add_command() {
  const auto baseline = std::make_shared<BaselineArguments>();
  Command command("baseline add", CommandGroup::operate, "Store accepted results as a baseline for later ones",
                  kBaselineHelp);
  command.argument("RESULT", &baseline->names, "Result folders or files of accept, run, sweep, collectives -J");
  command.option("--anyway", &baseline->anyway, "REASON",
                 "Store a result that was not accepted, too; the reason is stored with it");
  take_folder(command, *baseline);
  command.body = [baseline](const Call&) { return add_results(*baseline); };
  return command;
}

Command baseline_list_command() {
  const auto baseline = std::make_shared<BaselineArguments>();
  Command command("baseline list", CommandGroup::operate, "List the baselines, one line each");
  take_folder(command, *baseline);
  command.body = [baseline](const Call&) { return list_baselines(*baseline); };
  return command;
}

Command baseline_show_command() {
  const auto baseline = std::make_shared<BaselineArguments>();
  Command command("baseline show", CommandGroup::operate, "Print machine, results and figures of a baseline",
                  "Examples\n  fsdpbench baseline show acceptance-1f2e3d4c\n");
  command.argument("BASELINE", &baseline->names, "A name that `baseline list` prints, or a file");
  take_folder(command, *baseline);
  command.body = [baseline](const Call&) { return show_baselines(*baseline); };
  return command;
}

}  // namespace fsdpbench::app
