#include "runs/explain_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "account/cause_report.h"
#include "account/cause_table.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "base/error.h"
#include "record/json_part.h"
#include "runs/cause_fields.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"

namespace fsdpbench::app {

namespace {

using nlohmann::json;

constexpr int kResultDecimals = 2;

std::string causes_text(const JsonPart& result) {
  const account::CauseReport report = *trial_from_json(result).causes;
  CauseTable how{"Why computation was not running (mean of all ranks in the typical step)", kResultDecimals, "", {}};
  if (!report.no_typical_because.empty()) {
    how.title = "Why computation was not running (mean of all recorded ranks in the measured steps)";
    how.no_typical = fmt::format("There is no typical step: {}.\n", report.no_typical_because);
  }
  for (const account::Counterfactual& knob : report.knobs) {
    if (knob.advised) how.knobs.push_back(account::knob_sentence(knob));
  }
  std::string text = cause_table(report, how);
  if (result.has("critical_path")) {
    account::PathReport path;
    JsonType<account::PathReport>::read(result.at("critical_path"), path);
    text += "\n" + path_table(path, kResultDecimals);
  }
  return text;
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
