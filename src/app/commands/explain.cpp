#include "app/commands/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/console/console.h"
#include "app/console/json_text.h"
#include "app/report/explain_report.h"
#include "app/report/explain_result.h"
#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {

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
  const schedule::Schedule& steady = setup.schedules.steady();
  if (arguments.format == "collectives") {
    console().print(schedule::collective_order(setup.plan, steady) + "\n");
  } else if (arguments.format == "issue") {
    console().print(schedule::issue_order(setup.plan, steady) + "\n");
  } else if (arguments.format == "json") {
    console().print(json_text(explain_json(setup)));
  } else if (arguments.format == "table") {
    console().print(explain_text(setup));
  } else {
    throw ConfigError(
        fmt::format("--format {} is not known; valid: table, json, collectives, issue", arguments.format));
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
