#include "app/report/explain_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/console/json_part.h"
#include "app/console/table.h"
#include "app/report/result_file.h"
#include "base/error.h"

namespace fsdpbench::app {

namespace {

using nlohmann::json;

/// "54.20 ms [54.00 to 54.50]"; of what was not replayed nothing.
std::string without_text(const JsonPart& cause) {
  if (!cause.has("without")) return {};
  const JsonPart without = cause.at("without");
  const double step = without.at("step_ms").number(), whole = step + without.at("gain_ms").number();
  if (without.at("interval").text() == "one value") return fmt::format("{:.2f} ms", step);
  return fmt::format("{:.2f} ms [{:.2f} to {:.2f}]", step, whole - without.at("ci_high").number(),
                     whole - without.at("ci_low").number());
}

std::string causes_text(const JsonPart& result) {
  Table table;
  table.title = "Why computation was not running (mean of all ranks in the typical step)";
  table.header = {"cause", "ms", "of the step", "step without it", "worst at"};
  const double step = result.at("metrics").at("step_ms").at("median").number();
  std::string advice;
  for (const JsonPart& c : result.at("causes").list()) {
    const std::string cause = c.at("cause").text();
    std::string where = c.text("op", "");
    if (c.has("late_rank")) {
      where += fmt::format(", {}: rank {}", cause == "slow_link" ? "slow" : "late", c.at("late_rank").size());
    }
    table.rows.push_back({cause, fmt::format("{:.2f}", c.at("ms").number()),
                          fmt::format("{:.1f} %", c.at("share_pct").number()), without_text(c), where});
    if (const std::string text = c.at("advice").text(); !text.empty()) advice += fmt::format("- {}: {}\n", cause, text);
  }
  const double small = result.at("causes_small_ms").number();
  table.rows.push_back(
      {"small (each under 2 %)", fmt::format("{:.2f}", small), fmt::format("{:.1f} %", 100 * small / step), "", ""});
  if (result.has("jitter")) {
    const double jitter = result.at("jitter").at("stalled_ms").number();
    table.rows.push_back(
        {"jitter, of no cause", fmt::format("{:.2f}", jitter), fmt::format("{:.1f} %", 100 * jitter / step), "", ""});
  }
  std::string why;
  if (result.has("no_typical_step_because")) {
    table.title = "Why computation was not running (mean of all recorded ranks in the measured steps)";
    why = fmt::format("There is no typical step: {}.\n", result.at("no_typical_step_because").text());
  }
  std::string knobs;
  for (const JsonPart& knob : result.has("knobs") ? result.at("knobs").list() : std::vector<JsonPart>()) {
    if (knob.has("advice")) knobs += fmt::format("- {}\n", knob.at("advice").text());
  }
  if (!knobs.empty()) advice += "\nknobs, by what they gain:\n" + knobs;
  return format_table(table) + why + (advice.empty() ? "" : "\n" + advice);
}

}  // namespace

std::string explain_result(const std::string& given) {
  const ResultFile result = read_result(given);
  if (const std::string why = why_unfinished(result); !why.empty()) {
    throw ConfigError(fmt::format("{}: {}, so there are no causes in it.", result.path, why));
  }
  if (const json why = result.content.value("not_rated_because", json()); why.is_string()) {
    throw ConfigError(fmt::format("{}: the run is not rated, so there are no causes in it: {}.", result.path,
                                  why.get<std::string>()));
  }
  if (!result.content.contains("causes")) {
    throw ConfigError(fmt::format("{}: there are no causes in it; no measured step was completed.", result.path));
  }
  try {
    return causes_text(JsonPart(result.content));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: is damaged: {}.", result.path, error.what()));
  }
}

}  // namespace fsdpbench::app
