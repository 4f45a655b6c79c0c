#include <fmt/format.h>

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
#include "config/find_file.h"
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
  std::optional<std::string> measured;
  std::string out;  ///< folder for expect.json; empty: none is written
  bool overwrite = false;
};

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
  if (config.simulate.cluster.empty() && config.simulate.calibration.empty()) {
    throw ConfigError(
        "expect does not know the machine: name it with --cluster, a file or a name in profiles/clusters, or give op "
        "times of one with --set simulate.calibration=FILE.");
  }
  const std::vector<Assumption> assumptions = assumptions_of(config, profile, overrides);
  const Cell cell = open_cell(std::move(config));
  for (const std::string& note : notes) console().info(note);
  for (const std::string& note : cell.notes) console().info(note);
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("expect", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  }
  const Trial trial = measure(cell, {}, nullptr, {}, {});
  Expectation expectation = expect(cell, trial, measured);
  expectation.assumptions = assumptions;
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
links, the host, time outside the step; and how to measure which it is.

Examples
  fsdpbench expect llama3-8b --cluster dgx-h100 --ranks 64
  fsdpbench expect llama3-8b --cluster dgx-h100 --ranks 64 --measured 6150
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
  command.out(expect_it->out, expect_it->overwrite, "Folder for expect.json; default: none is written");
  command.body = [expect_it](const Call&) { return say_what_to_expect(*expect_it); };
  return command;
}

}  // namespace fsdpbench::app
