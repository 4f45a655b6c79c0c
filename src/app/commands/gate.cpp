#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accept/gate/gate_report.h"
#include "accept/stages/judgement_files.h"
#include "app/commands/command.h"
#include "base/error.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench gate`.
struct GateArguments {
  std::vector<std::string> results;  ///< of one machine: folders or files
  std::string against;               ///< a baseline: a folder of results; or another result
  double threshold = 5;              ///< in percent: smaller differences are of no interest
  bool other_software = false;       ///< two versions of kernel, driver, libraries or build, on purpose
  bool other_machine = false;        ///< two machines, on purpose
  std::string out;                   ///< folder for gate.json, junit.xml and summary.md; empty: none
  bool overwrite = false;
  bool verbose = false;
};

/// Says what is worse than it was. Returns ExitCode::ok, slower, inconclusive or other_machine; throws base/error.h
/// errors.
int gate_results(const GateArguments& arguments) {
  if (!(arguments.threshold >= 0 && arguments.threshold <= 100)) {
    throw ConfigError(
        fmt::format("--threshold {} is no percentage; expected a number from 0 to 100.", arguments.threshold));
  }
  std::vector<GatedResult> now;
  for (const std::string& given : arguments.results) now.push_back(read_gated_result(given));
  const Baseline baseline = find_baseline(arguments.against, now.front());
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("gate", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse,
                   arguments.results);
  }
  const OtherMachine allowed = arguments.other_machine    ? OtherMachine::any
                               : arguments.other_software ? OtherMachine::software
                                                          : OtherMachine::no;
  const GateReport report = judge_gate(baseline, std::move(now), allowed, arguments.threshold / 100);
  console().print(gate_table(report, arguments.verbose));
  if (folder) {
    const std::string& date = report.now.front().date;
    write_file(folder->path() / "gate.json", json_text(gate_json(report)));
    write_file(folder->path() / "junit.xml", junit_xml({.suite = "gate", .date = date}, report.judgements));
    write_file(folder->path() / "summary.md", gate_markdown(report));
    console().info(fmt::format("written to {}", folder->path().string()));
  }
  return report.exit_code();
}

constexpr const char* kGateHelp =
    R"(Compares every figure of the result with the baseline: worse, better, or within the scatter of this machine's
results, with an interval and the evidence. Processor, GPUs, memory, ranks, kernel, drivers and libraries must be the
same; differences are listed. The revision of fsdpbench may differ, since that is what a CI asks about.
A baseline is a folder of results: from three on, how much results of this machine scatter is known. Those of another
kind, machine or measurement, and those that were not accepted, do not count.
Written with --out: gate.json (`fsdpbench report` draws both sides), junit.xml and summary.md (a job's summary).

Examples
  cp -r runs/monday baselines/monday
  fsdpbench gate runs/tonight --against baselines --out gate
  fsdpbench gate runs/driver-580 --against runs/driver-570 --other-software --out two-drivers

Exit codes: 0 nothing is worse, 7 worse, 11 inconclusive, 12 another machine or another measurement; others:
fsdpbench help exit-codes.
)";

}  // namespace

Command gate_command() {
  const auto gate = std::make_shared<GateArguments>();
  Command command("gate", CommandGroup::operate, "Say what is worse than a baseline; for CI", kGateHelp);
  command.argument("RESULT", &gate->results, "Result folder or file; several must be of one machine");
  command
      .option("-a,--against", &gate->against, "BASELINE",
              "A folder of earlier results of the machine, or another result")
      .required();
  command.option("--threshold", &gate->threshold, "PERCENT", "Smaller differences do not count as worse; default: 5");
  command.flag("--other-software", gate->other_software, "Compare two kernels, drivers, libraries or builds");
  command.flag("--other-machine", gate->other_machine, "Compare two machines");
  command.flag("--verbose", gate->verbose, "Print figures, too, that were not rated");
  command.out(gate->out, gate->overwrite,
              "Folder for gate.json, junit.xml and summary.md; default: nothing is written");
  command.body = [gate](const Call&) { return gate_results(*gate); };
  return command;
}

}  // namespace fsdpbench::app
