#include "app/commands/gate.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "app/acceptance/judgement_files.h"
#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/gate/gate_report.h"
#include "app/report/result_folder.h"
#include "base/error.h"

namespace fsdpbench::app {

int gate_command(const GateArguments& arguments) {
  if (!(arguments.threshold >= 0 && arguments.threshold <= 100)) {
    throw ConfigError(
        fmt::format("--threshold {} is no percentage; expected a number from 0 to 100.", arguments.threshold));
  }
  std::vector<GatedResult> now;
  for (const std::string& given : arguments.results) now.push_back(read_gated_result(given));
  const Baseline baseline = find_baseline(arguments.against, now.front());
  std::optional<ResultFolder> folder;
  if (!arguments.out.empty()) {
    folder.emplace("gate", arguments.out, arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  }
  const OtherMachine allowed = arguments.other_machine    ? OtherMachine::any
                               : arguments.other_software ? OtherMachine::software
                                                          : OtherMachine::no;
  const GateReport report = judge_gate(baseline, std::move(now), allowed, arguments.threshold / 100);
  console().print(gate_table(report));
  if (folder) {
    const std::string& date = report.now.front().date;
    write_file(folder->path() / "gate.json", json_text(gate_json(report)));
    write_file(folder->path() / "junit.xml", junit_xml({.suite = "gate", .date = date}, report.judgements));
    write_file(folder->path() / "summary.md", gate_markdown(report));
    console().info(fmt::format("written to {}", folder->path().string()));
  }
  return report.exit_code();
}

}  // namespace fsdpbench::app
