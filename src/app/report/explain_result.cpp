#include "app/report/explain_result.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/console/table.h"
#include "app/report/result_json.h"
#include "base/error.h"

namespace fsdpbench::app {

using nlohmann::json;

std::string causes_text(const json& result) {
  Table table;
  table.title = "Why computation was not running (mean of all ranks, scaled to the step time as the run's table is)";
  table.header = {"cause", "ms", "of the step", "worst at"};
  const double step = result.at("metrics").at("step_ms").at("median");
  std::string advice;
  for (const json& c : result.at("causes")) {
    const std::string cause = c.at("cause");
    std::string where = c.value("op", "");
    if (c.contains("late_rank")) where += fmt::format(", late: rank {}", c.at("late_rank").get<int>());
    table.rows.push_back({cause, fmt::format("{:.2f}", c.at("ms").get<double>()),
                          fmt::format("{:.1f} %", c.at("share_pct").get<double>()), where});
    advice += fmt::format("- {}: {}\n", cause, c.at("advice").get<std::string>());
  }
  const double small = result.at("causes_small_ms");
  table.rows.push_back(
      {"small (each under 2 %)", fmt::format("{:.2f}", small), fmt::format("{:.1f} %", 100 * small / step), ""});
  return format_table(table) + (advice.empty() ? "" : "\n" + advice);
}

std::string why_unfinished(const json& result) {
  if (!result.contains("failure")) return "";
  return fmt::format("this run did not finish ({}) and its result holds the step times of one rank only",
                     result.at("failure").at("message").get<std::string>());
}

std::string explain_result(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw ConfigError(fmt::format("cannot read {}; expected a result.json that `fsdpbench run` wrote", path));
  try {
    const json result = json::parse(file);
    const int version = result.at("schema_version");
    if (version != kResultSchemaVersion) {
      throw ConfigError(
          fmt::format("{}: schema_version is {}; this program reads {}", path, version, kResultSchemaVersion));
    }
    if (const std::string why = why_unfinished(result); !why.empty()) {
      throw ConfigError(fmt::format("{}: {}, so there are no causes in it.", path, why));
    }
    if (result.contains("not_rated_because")) {
      throw ConfigError(fmt::format("{}: the run is not rated, so there are no causes in it: {}.", path,
                                    result.at("not_rated_because").get<std::string>()));
    }
    if (!result.contains("causes")) {
      throw ConfigError(fmt::format("{}: there are no causes in it; no measured step was completed", path));
    }
    return causes_text(result);
  } catch (const json::exception& error) {
    throw ConfigError(fmt::format("{}: not a result.json that `fsdpbench run` wrote ({})", path, error.what()));
  }
}

}  // namespace fsdpbench::app
