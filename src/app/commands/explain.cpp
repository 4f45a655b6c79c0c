#include "app/commands/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/report/explain_report.h"
#include "app/report/explain_result.h"
#include "app/report/parallelism_report.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

std::string answer(const ExplainArguments& arguments, const engine::Setup& p) {
  const std::string& format = arguments.format;
  const bool views = format == "table" || format == "json";
  if (!views && (arguments.parameters || !arguments.schedule.empty())) {
    throw ConfigError(fmt::format("{} does not go with --format {}; leave one of them out",
                                  arguments.parameters ? "--parameters" : "--schedule", format));
  }
  if (arguments.compare_parallelism) {
    if (!views || arguments.parameters || !arguments.schedule.empty()) {
      throw ConfigError(fmt::format("--compare-parallelism is a table or JSON of its own; leave {} out",
                                    arguments.parameters          ? "--parameters"
                                    : !arguments.schedule.empty() ? "--schedule"
                                                                  : "--format " + format));
    }
    if (p.plan.mesh.tensor > 1) {
      throw ConfigError(fmt::format(
          "--compare-parallelism has a row for ranks that split layers beside the others; mesh.tensor = {} splits them "
          "in every row. Expected 1.",
          p.plan.mesh.tensor));
    }
    return format == "json" ? json_text(parallelism_json(p)) : parallelism_text(p);
  }
  const schedule::Schedule& steady = p.schedules.steady();
  if (format == "collectives") return schedule::collective_order(p.plan, steady) + "\n";
  if (format == "issue") return schedule::issue_order(p.plan, steady) + "\n";
  const Prediction prediction = predict(p, arguments.rates);
  if (format == "json") return json_text(explain_json(p, prediction, arguments.parameters));
  if (format == "summary") return explain_summary(p, prediction);
  if (format != "table") {
    throw ConfigError(fmt::format("--format {} is not known; valid: table, summary, json, collectives, issue", format));
  }
  if (!arguments.parameters && arguments.schedule.empty()) return explain_text(p, prediction);
  std::string text;
  if (arguments.parameters) text += parameters_text(p);
  if (!arguments.schedule.empty()) text += (text.empty() ? "" : "\n") + schedule_text(p, arguments.schedule);
  return text;
}

}  // namespace

int explain_command(const ExplainArguments& arguments) {
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

}  // namespace fsdpbench::app
