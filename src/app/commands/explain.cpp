#include <fmt/format.h>

#include <algorithm>
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
  std::string format = "table";  ///< "table", "summary", "json", "collectives" or "issue"
  std::string schedule;          ///< print the schedule: "all", a unit or a layer; empty: the table instead
  std::string hlo;               ///< a compiled program of XLA instead of a profile
  GivenRates rates;              ///< for the predicted step
};

std::string answer(const ExplainArguments& arguments, const engine::Setup& p) {
  const std::string& format = arguments.format;
  const bool views = format == "table" || format == "json";
  if (!views && !arguments.schedule.empty()) {
    throw ConfigError(fmt::format("--schedule does not go with --format {}; leave one of them out", format));
  }
  const schedule::Schedule& steady = p.schedules.steady();
  if (format == "collectives") return schedule::collective_order(p.plan, steady) + "\n";
  if (format == "issue") return schedule::issue_order(p.plan, steady) + "\n";
  const Prediction prediction = predict(p, arguments.rates);
  if (format == "json") return json_text(explain_json(p, prediction));
  if (format == "summary") return explain_summary(p, prediction);
  if (format != "table") {
    throw ConfigError(fmt::format("--format {} is not known; valid: table, summary, json, collectives, issue", format));
  }
  return arguments.schedule.empty() ? explain_text(p, prediction) : schedule_text(p, arguments.schedule);
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
  std::vector<std::string> notes, overrides = arguments.overrides;
  const auto names_cluster = [](const std::string& text) { return text.starts_with("simulate.cluster="); };
  if (std::ranges::any_of(overrides, names_cluster)) overrides.insert(overrides.begin(), "device.backend=virtual");
  config::RunConfig config = config::load_profile(config::find_profile(arguments.profile), overrides, &notes);
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
  table        plan, memory with and without FSDP, communication against data parallel, predicted step
  summary      one screen of it
  json         everything for programs, the schedule op by op
  collectives  the order of collectives of a steady step on one line: AGR AG0 … | AG3* … RS3 …;
               AG, RS, AR: all-gather, reduce-scatter, all-reduce; R: root unit; *: prefetched in backward; ARnorm: of
               the gradient norm
  issue        the order in which units are gathered (U), freed (S) and reduced (P)

Examples
  fsdpbench explain llama3-8b-emulated --format summary
  fsdpbench explain --from runs/first
  fsdpbench explain llama3-8b --cluster dgx-h100 --ranks 64
  fsdpbench explain --hlo compiled.hlo.txt
  fsdpbench explain quickstart --schedule=blocks.2
  fsdpbench explain gpu-1b --tflops 400 --link-gb-per-s 100 --link-latency-us 5
)";

}  // namespace

Command explain_command() {
  const auto explain_it = std::make_shared<ExplainArguments>();
  Command command("explain", CommandGroup::understand, "Print plan, memory and schedule; or why a run was slow",
                  kExplainHelp);
  command.profile(explain_it->profile, explain_it->overrides).is_required = false;
  command.cluster(explain_it->overrides, "Predict the step on this machine, as --set simulate.cluster=NAME does");
  command.ranks(explain_it->overrides);
  Option& from = command.option("--from", &explain_it->from, "RESULT",
                                "A result folder instead: why nothing was computed, the largest cause first");
  from.without({"PROFILE"}).goes_alone = true;
  command.option("-f,--format", &explain_it->format, "FORMAT", "table, summary, json, collectives or issue")
      .one_of({"table", "summary", "json", "collectives", "issue"});
  command
      .option("--hlo", &explain_it->hlo, "FILE",
              "A program compiled by XLA instead (compiled.as_text(), a dump, an xplane.pb): its collectives")
      .without({"PROFILE", "--from"});
  command
      .option("--schedule", &explain_it->schedule, "[=LAYER]", "Every op of a step; or those of a layer or unit only")
      .alone = "all";
  GivenRates& rates = explain_it->rates;
  command.option("--tflops", &rates.tflops, "NUMBER",
                 "A rank's TFLOP/s, for the predicted step; default: emulate.compute_tflops");
  command.option("--link-gb-per-s", &rates.link_gb_per_s, "NUMBER",
                 "Bandwidth of a rank's link; default: emulate.link_gb_per_s");
  command.option("--link-latency-us", &rates.link_latency_us, "NUMBER",
                 "Latency per hop; default: emulate.link_latency_us");
  command.check = [explain_it] {
    if (!explain_it->profile.empty() || !explain_it->from.empty() || !explain_it->hlo.empty()) return;
    throw ConfigError("explain needs a PROFILE, --from RESULT or --hlo FILE; see fsdpbench explain --help.");
  };
  command.body = [explain_it](const Call&) { return explain_profile(*explain_it); };
  return command;
}

}  // namespace fsdpbench::app
