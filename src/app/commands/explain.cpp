#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/explain_report.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "foreign/xla_program.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/result_json.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench explain`.
struct ExplainArguments {
  std::string profile;                 ///< a file, a result folder, or a name: config::find_profile
  std::vector<std::string> overrides;  ///< `key=value`, in the order given; later ones win
  std::string from;              ///< a result folder (or result.json) to explain instead of a profile; empty: none
  std::string format = "table";  ///< "table", "json" or "collectives"
  bool schedule = false;         ///< every op of a step instead of the table
  std::string hlo;               ///< a compiled program of XLA instead of a profile
};

std::string answer(const ExplainArguments& arguments, const engine::Setup& p) {
  const std::string& format = arguments.format;
  if (format == "collectives") return schedule::collective_order(p.plan, p.schedules.steady()) + "\n";
  if (format == "json") return json_text(explain_json(p));
  return arguments.schedule ? schedule_text(p) : explain_text(p);
}

/// Prints plan, memory, communication and schedule on stdout; runs nothing. Returns the process exit code.
int explain_profile(const ExplainArguments& arguments) {
  if (!arguments.hlo.empty()) {
    if (arguments.format != "table" && arguments.format != "json") {
      throw ConfigError(fmt::format("--format {} does not go with --hlo; valid: table, json", arguments.format));
    }
    console().print(foreign::hlo_answer(arguments.hlo, "", arguments.format == "json"));
    return static_cast<int>(ExitCode::ok);
  }
  if (!arguments.from.empty()) {
    console().print(explain_result(arguments.from));
    return static_cast<int>(ExitCode::ok);
  }
  std::vector<std::string> notes;
  config::RunConfig config = config::load_profile(config::find_profile(arguments.profile), arguments.overrides, &notes);
  for (std::string& note : config::validate(config)) notes.push_back(std::move(note));
  for (const std::string& note : notes) console().info(note);
  const engine::Setup setup = engine::set_up(config);
  console().print(answer(arguments, setup));
  return static_cast<int>(ExitCode::ok);
}

constexpr const char* kExplainHelp =
    R"(Nothing runs. Without --from it is about a profile; the tables and JSON come from the schedules that `run` would
execute.

Formats
  table        plan, memory, communication against data parallel
  json         everything for programs, but the schedule op by op
  collectives  the order of collectives of a steady step on one line: AGR AG0 … | AG3* … RS3 …;
               AG, RS, AR: all-gather, reduce-scatter, all-reduce; R: root unit; *: prefetched in backward; ARnorm: of
               the gradient norm

Examples
  fsdpbench explain llama3-8b-emulated
  fsdpbench explain --from runs/first
  fsdpbench explain llama3-8b --ranks 64
  fsdpbench explain --hlo compiled.hlo.txt
  fsdpbench explain quickstart --schedule
)";

}  // namespace

Command explain_command() {
  const auto explain_it = std::make_shared<ExplainArguments>();
  Command command("explain", CommandGroup::understand, "Print plan, memory and schedule; or why a run was slow",
                  kExplainHelp);
  command.profile(explain_it->profile, explain_it->overrides).is_required = false;
  command.ranks(explain_it->overrides);
  Option& from = command.option("--from", &explain_it->from, "RESULT",
                                "A result folder instead: why nothing was computed, the largest cause first");
  from.without({"PROFILE"}).goes_alone = true;
  command.option("-f,--format", &explain_it->format, "FORMAT", "table, json or collectives")
      .one_of({"table", "json", "collectives"});
  command
      .option("--hlo", &explain_it->hlo, "FILE",
              "A program compiled by XLA instead (compiled.as_text(), a dump, an xplane.pb): its collectives")
      .without({"PROFILE", "--from"});
  command.flag("--schedule", explain_it->schedule, "Every op of a step, instead of the tables")
      .without({"--format", "--hlo"});
  command.check = [explain_it] {
    if (!explain_it->profile.empty() || !explain_it->from.empty() || !explain_it->hlo.empty()) return;
    throw ConfigError("explain needs a PROFILE, --from RESULT or --hlo FILE; see fsdpbench explain --help.");
  };
  command.body = [explain_it](const Call&) { return explain_profile(*explain_it); };
  return command;
}

}  // namespace fsdpbench::app
