#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/command.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/published.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/assumptions.h"
#include "runs/measure.h"
#include "runs/result_folder.h"
#include "tune/expectation.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench expect`.
struct ExpectArguments {
  std::string profile;
  std::vector<std::string> overrides;
  std::optional<std::string> measured, framework, between_nodes, rows;
  std::string out;  ///< folder for expect.json; empty: none is written
  bool overwrite = false;
};

/// Says what the trainings of a table have in common. Returns the process exit code.
int say_what_rows_share(const ExpectArguments& arguments, const std::string& profile,
                        const std::vector<std::string>& overrides) {
  std::vector<Cell> cells;
  std::vector<MeasuredRate> measured;
  std::vector<std::string> names;
  for (const config::CsvRow& row : config::read_csv(*arguments.rows)) {
    std::vector<std::string> all = overrides;
    std::istringstream words(row.text("set"));
    for (std::string word; words >> word;) all.push_back(word);
    cells.push_back(open_cell(load_config(profile, all, nullptr)));
    measured.push_back(read_measured_rate(row.text("measured")));
    names.push_back(row.text("name"));
  }
  if (cells.size() < 2) throw ConfigError(*arguments.rows + ": expected two measured trainings or more.");
  console().print(shared_text(shared_reasons(cells, measured), names));
  return static_cast<int>(ExitCode::ok);
}

/// Simulates the profile and prints what it should reach, what is nearest to it, and what would explain the difference
/// to what was measured. Returns the process exit code.
int say_what_to_expect(const ExpectArguments& arguments) {
  std::optional<MeasuredRate> measured;
  if (arguments.measured) measured = read_measured_rate(*arguments.measured);
  std::vector<std::string> overrides = arguments.overrides;
  overrides.insert(overrides.begin(), "device.backend=virtual");
  std::vector<std::string> notes;
  const std::string profile = config::find_profile(arguments.profile);
  config::RunConfig config = load_config(profile, overrides, nullptr, &notes);
  if (arguments.framework) {
    const std::set<std::string, std::less<>> said = config::said_keys(profile, overrides);
    std::vector<std::string> settings = framework_settings(*arguments.framework, config.simulate.cluster);
    std::erase_if(settings,
                  [&](const std::string& setting) { return said.contains(setting.substr(0, setting.find('='))); });
    overrides.insert(overrides.begin() + 1, settings.begin(), settings.end());
  }
  if (arguments.between_nodes) {
    overrides.push_back("simulate.cluster=" + config.simulate.cluster + ":" + between_nodes(*arguments.between_nodes));
  }
  if (arguments.framework || arguments.between_nodes) config = load_config(profile, overrides, nullptr);
  if (config.simulate.cluster.empty() && config.simulate.calibration.empty()) {
    throw ConfigError(
        "expect does not know the machine: name it with --cluster, a file or a name in profiles/clusters, or give op "
        "times of one with --set simulate.calibration=FILE.");
  }
  if (arguments.rows) return say_what_rows_share(arguments, profile, overrides);
  std::vector<Assumption> assumptions = assumptions_of(config, profile, overrides);
  assumptions.insert(assumptions.begin(), {"framework", framework_of(config), arguments.framework.has_value()});
  const Cell cell = open_cell(std::move(config));
  for (const std::string& note : notes) console().info(note);
  for (const std::string& note : cell.notes) console().info(note);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("expect", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse,
                   std::vector<std::string>{profile});
  }
  const Trial trial = measure(cell, {}, nullptr, {}, {});
  const Expectation expectation = expect(cell, trial, measured, std::move(assumptions));
  console().print(expectation_text(expectation));
  if (folder) {
    const std::filesystem::path path = folder->path() / "expect.json";
    console().print(fmt::format("\nexpect  {}\n", path.string()));
    write_file(path, json_text(fields<Expectation>().write(expectation)));
  }
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kExpectHelp =
    R"(Simulates the training as `simulate` does and says what a healthy machine reaches: tokens/s of a rank, step, MFU,
exposed communication and memory, with the published training that is nearest to it. With what you measured of your
own job it says whether that is as expected and, if not, what would explain the difference, each alone: computation,
links, the host, time outside the step; and how to measure which it is. It names what the interval hangs on.

Examples
  fsdpbench expect llama3-8b --cluster dgx-h100 --ranks 64
  fsdpbench expect llama3-8b --cluster dgx-h100 --ranks 64 --measured 6150
  fsdpbench expect llama3-8b --cluster dgx-h100 --ranks 64 --framework torchtitan --between-nodes 180GB/s
  fsdpbench expect my-job.toml --cluster hgx-h200 --measured "2.31 s" --out runs/expected
)";

}  // namespace

Command expect_command() {
  const auto expect_it = std::make_shared<ExpectArguments>();
  Command command("expect", CommandGroup::predict, "What a job should reach on a cluster; why yours does not",
                  kExpectHelp);
  command.profile(expect_it->profile, expect_it->overrides);
  command.cluster(expect_it->overrides);
  command.ranks(expect_it->overrides);
  command.option("--measured", &expect_it->measured, "RATE",
                 "Of your job: tokens/s of a rank (6150), a step (\"2.31 s\", \"2310 ms\"), or MFU (\"41 %\")");
  command.option("--framework", &expect_it->framework, "NAME",
                 "Whose code trains: torchtitan, pytorch, deepspeed, megatron, own, or another of docs/published.md");
  command.option("--between-nodes", &expect_it->between_nodes, "RATE",
                 "Bus bandwidth measured between nodes (12GB/s), or a log of nccl-tests or file of `collectives`");
  command.option("--rows", &expect_it->rows, "FILE",
                 "Several measured trainings (name,set,measured): what alone explains them all");
  command.out(expect_it->out, expect_it->overwrite, "Folder for expect.json; default: none is written");
  command.body = [expect_it](const Call&) { return say_what_to_expect(*expect_it); };
  return command;
}

}  // namespace fsdpbench::app
