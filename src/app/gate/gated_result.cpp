#include "app/gate/gated_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "app/acceptance/judgement_files.h"
#include "app/console/json_text.h"
#include "app/experiment/trial_json.h"
#include "app/experiment/trial_log.h"
#include "app/report/compare_report.h"
#include "app/report/result_file.h"
#include "base/error.h"
#include "base/paths.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using accept::MeasuredFigure;
using nlohmann::json;

constexpr const char* kExpectedResult =
    "expected the folder or file of a result of `fsdpbench accept`, run, simulate, sweep or collectives -J";
constexpr std::int64_t kMostSamples = 1'000'000'000;

fs::path file_of(const std::string& given) {
  const fs::path path(given);
  if (const std::string why = lookup_error(path); !why.empty()) {
    throw ConfigError(fmt::format("{}: {}; {}.", given, why, kExpectedResult));
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {"result.json", "sweep.json"}) {
    if (path_exists(path / name)) return path / name;
  }
  throw ConfigError(fmt::format("{}: has neither result.json nor sweep.json; {}.", given, kExpectedResult));
}

json read_json_file(const fs::path& path) {
  if (!path_exists(path)) throw ConfigError(fmt::format("{}: is not there; {}.", path.string(), kExpectedResult));
  if (is_no_plain_file(path))
    throw ConfigError(fmt::format("{}: is no regular file; {}.", path.string(), kExpectedResult));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be opened for reading; {}.", path.string(), kExpectedResult));
  json content = parse_json(std::string{std::istreambuf_iterator<char>(file), {}});
  if (!content.is_object()) {
    throw ConfigError(fmt::format("{}: is no JSON object, or was cut off; {}.", path.string(), kExpectedResult));
  }
  return content;
}

/// Also of the name of its folder: result.json says nothing.
std::string name_of_result(const fs::path& file) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(file, error);
  const bool plain = file.filename() == "result.json" || file.filename() == "sweep.json";
  return plain ? whole.parent_path().filename().string() : file.stem().string();
}

MeasuredFigure figure(std::string name, std::string unit, std::vector<double> samples, bool higher_is_better = false) {
  MeasuredFigure f;
  f.name = std::move(name);
  f.unit = std::move(unit);
  f.higher_is_better = higher_is_better;
  f.value = accept::median_interval(samples);
  f.samples = std::move(samples);
  return f;
}

MeasuredFigure counted(std::string name, double value) {
  MeasuredFigure f = figure(std::move(name), "B", {value});
  f.counted = true;
  return f;
}

accept::Interval interval_from(const JsonPart& j) {
  return {j.at("median").number(), j.at("low").number(), j.at("high").number(),
          static_cast<int>(j.at("n").whole(0, kMostSamples))};
}

/// Rules whose figures are measurements that may get worse, with their direction. Others say the same figure again
/// (ceiling), or something of this run alone (peers, inventory).
struct MeasuredRule {
  const char* rule;
  bool higher_is_better;
};
constexpr std::array kMeasuredRules{MeasuredRule{"floor", true}, MeasuredRule{"tail", false},
                                    MeasuredRule{"exposed communication", false}, MeasuredRule{"slow-down", false}};

void read_acceptance_result(const JsonPart& j, GatedResult& result) {
  result.kind = "acceptance";
  result.measured = {
      {"fabric", j.at("fabric").text()}, {"ranks", j.at("ranks").value()}, {"nodes", j.at("nodes").value()}};
  for (const char* key : {"profile", "run"}) {
    if (j.has(key)) result.measured[key] = j.at(key).value();
  }
  if (const std::string verdict = j.at("verdict").text(); verdict != "pass") {
    result.not_accepted_because = fmt::format("its verdict is {}", verdict);
  }
  for (const JsonPart& judgement : j.at("judgements").list()) {
    const std::string rule = judgement.at("rule").text();
    const auto* const known = std::ranges::find(kMeasuredRules, rule, &MeasuredRule::rule);
    if (known == kMeasuredRules.end() || !judgement.has("value")) continue;
    MeasuredFigure f;
    f.name = judgement.at("figure").text();
    if (rule == "tail") f.name += ", time";
    f.unit = judgement.text("unit", "");
    f.higher_is_better = known->higher_is_better;
    f.value = interval_from(judgement.at("value"));
    if (rule == "exposed communication") {  // shares may be 0, which has no ratio; what is left of a step has one
      f.name = "share of a step without exposed communication, " + f.name;
      f.higher_is_better = true;
      f.value = {1 - f.value.median, 1 - f.value.high, 1 - f.value.low, f.value.n};
    }
    result.figures.figures.push_back(std::move(f));
  }
  if (!j.has("arms")) return;
  for (const auto& [key, name] : {std::pair{"computation_ms", "computation of a step, alone"},
                                  {"communication_ms", "communication of a step, alone"},
                                  {"whole_ms", "step"}}) {
    std::vector<double> rounds;
    for (const JsonPart& round : j.at("arms").at("rounds").list()) rounds.push_back(round.at(key).number());
    if (!rounds.empty()) result.figures.figures.push_back(figure(name, "ms", std::move(rounds)));
  }
}

void read_run_result(const JsonPart& j, const ResultFile& file, GatedResult& result) {
  result.kind = "run";
  result.measured = j.at("config").value();
  for (const char* table : {"trace", "checkpoint"}) result.measured.erase(table);  // nothing of what is measured
  if (result.measured.contains("train")) {
    for (const char* key : {"steps", "warmup"}) result.measured["train"].erase(key);  // how often
  }
  if (std::string why = why_unfinished(file); !why.empty()) {
    result.not_accepted_because = std::move(why);
  } else if (!j.flag("complete", true)) {
    result.not_accepted_because = "the run was stopped before its last step";
  } else if (j.has("diverged_because")) {
    result.not_accepted_because = "training diverged: " + j.at("diverged_because").text();
  } else if (!j.flag("rated", true)) {
    result.not_accepted_because = "it is not rated: " + j.text("not_rated_because", "the file does not say why");
  }
  if (!j.has("metrics")) throw ConfigError("no measured step was completed, so there is nothing to compare");
  const Trial trial = trial_from_json(j);
  result.figures.figures.push_back(figure("step time", "ms", trial.metrics->steps_ms));
  for (const auto& [name, value] : metric_numbers(trial)) {
    if (name == "exposed_comm_ms" || name == "compute_ms") {
      result.figures.figures.push_back(figure(std::string(name.substr(0, name.size() - 3)), "ms", {value}));
    }
  }
  result.figures.figures.push_back(counted("peak memory", static_cast<double>(trial.memory.peak_occupied_total)));
  const plan::CommunicationVolume& wire = trial.wire;
  result.figures.figures.push_back(
      counted("bytes on the wire", wire.all_gather + wire.reduce_scatter + wire.all_reduce + wire.all_to_all));
}

/// The median step of every trial, by cell; empty if the log is not there.
std::map<std::string, std::vector<double>> trials_of(const fs::path& log) {
  std::map<std::string, std::vector<double>> by_cell;
  if (!path_exists(log) || is_no_plain_file(log)) return by_cell;
  std::ifstream file(log, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const LoggedTrial& logged : parse_trials(text, log.string()).trials) {
    if (logged.trial && logged.trial->metrics) {
      by_cell[logged.cell].push_back(metrics::median(logged.trial->metrics->steps_ms));
    }
  }
  return by_cell;
}

void read_sweep_result(const JsonPart& j, const fs::path& file, GatedResult& result) {
  result.kind = "sweep";
  result.measured = {{"sweep", j.at("sweep_hash").value()}};
  if (j.flag("mixed_worlds", false))
    result.not_accepted_because = "its trials come from different machines or programs";
  if (!j.flag("complete", true)) result.not_accepted_because = "the sweep is not complete";
  const auto trials = trials_of(file.parent_path() / "trials.jsonl");
  for (const JsonPart& cell : j.at("cells").list()) {
    const std::string id = cell.at("id").text();
    if (cell.at("status").text() != "ok" && result.not_accepted_because.empty()) {
      result.not_accepted_because =
          fmt::format("cell {} is {}: {}", id, cell.at("status").text(), cell.text("reason", ""));
    }
    if (!cell.flag("rated", true) && result.not_accepted_because.empty()) {
      result.not_accepted_because = fmt::format("cell {} is not rated: {}", id, cell.text("not_rated_because", ""));
    }
    if (!cell.has("metrics")) continue;
    const JsonPart step = cell.at("metrics").at("step_ms");
    const auto found = trials.find(id);
    MeasuredFigure f =
        figure("step time of " + id, "ms", found == trials.end() ? std::vector<double>{} : found->second);
    if (f.samples.empty()) {
      f.value = {step.at("median").number(), step.at("ci_low").number(), step.at("ci_high").number(),
                 static_cast<int>(step.at("n").whole(0, kMostSamples))};
    }
    result.figures.figures.push_back(std::move(f));
    if (cell.has("memory")) {
      result.figures.figures.push_back(
          counted("peak memory of " + id, static_cast<double>(cell.at("memory").at("peak_bytes").at("total").size())));
    }
  }
}

void read_collectives_result(const JsonPart& j, GatedResult& result) {
  result.kind = "collectives";
  result.measured = {{"collectives", true}};
  for (const JsonPart& operation : j.at("operations").list()) {
    const std::string op = operation.at("name").text();
    if (operation.at("out_of_bounds").value().is_object() && !operation.at("out_of_bounds").at("okay").flag()) {
      result.not_accepted_because = op + " gave wrong results";
    }
    for (const JsonPart& row : operation.at("results").list()) {
      for (const char* half : {"out_of_place", "in_place"}) {
        if (!row.at(half).value().is_object()) continue;
        std::vector<double> times;
        for (const JsonPart& us : row.at(half).at("per_iteration").at("times_us").list()) times.push_back(us.number());
        result.figures.figures.push_back(
            figure(fmt::format("{} of {} B, {}{}", op, row.at("size").size(), row.at("type").text(),
                               std::string_view(half) == "in_place" ? ", in place" : ""),
                   "us", std::move(times)));
      }
    }
  }
}

}  // namespace

GatedResult read_gated_result(const std::string& given) {
  const fs::path file = file_of(given);
  const json content = read_json_file(file);
  const JsonPart j(content);
  GatedResult result;
  result.name = name_of_result(file);
  result.figures.name = result.name;
  try {
    const std::string kind = j.text("kind", content.contains("sweep_hash") ? "sweep"
                                            : content.contains("steps")    ? "run"
                                                                           : "");
    if (kind == "acceptance") {
      read_acceptance_result(j, result);
    } else if (kind == "collectives") {
      read_collectives_result(j, result);
    } else if (kind == "sweep") {
      read_sweep_result(j, file, result);
    } else if (kind == "run" || content.contains("failure")) {
      read_run_result(j, {file.string(), content}, result);
    } else {
      throw ConfigError(fmt::format("is no such result; {}", kExpectedResult));
    }
    result.machine = MachinePrint::of_world(j.at("world"));
    result.date = j.at("world").text("date", "");
  } catch (const ConfigError& error) {
    std::string why = error.what();
    if (why.ends_with('.')) why.pop_back();
    throw ConfigError(fmt::format("{}: {}.", file.string(), why));
  }
  return result;
}

json to_json(const GatedResult& r) {
  json j{{"name", r.name},         {"kind", r.kind},          {"date", r.date}, {"machine", r.machine.to_json()},
         {"measured", r.measured}, {"figures", json::array()}};
  if (!r.not_accepted_because.empty()) j["not_accepted_because"] = r.not_accepted_because;
  if (!r.kept_anyway_because.empty()) j["kept_anyway_because"] = r.kept_anyway_because;
  for (const MeasuredFigure& f : r.figures.figures) {
    json one{{"name", f.name},
             {"unit", f.unit},
             {"better", f.higher_is_better ? "more" : "less"},
             {"value", interval_json(f.value)}};
    if (f.counted) one["counted"] = true;
    if (!f.samples.empty()) one["samples"] = f.samples;
    j["figures"].push_back(std::move(one));
  }
  return j;
}

GatedResult gated_result_from_json(const JsonPart& j) {
  GatedResult r;
  r.name = r.figures.name = j.at("name").text();
  r.kind = j.at("kind").text();
  r.date = j.at("date").text();
  r.machine = MachinePrint::from_json(j.at("machine"));
  r.measured = j.at("measured").value();
  r.not_accepted_because = j.text("not_accepted_because", "");
  r.kept_anyway_because = j.text("kept_anyway_because", "");
  for (const JsonPart& one : j.at("figures").list()) {
    MeasuredFigure& f = r.figures.figures.emplace_back();
    f.name = one.at("name").text();
    f.unit = one.at("unit").text();
    const std::string better = one.at("better").text();
    if (better != "more" && better != "less") one.at("better").refuse("\"more\" or \"less\"");
    f.higher_is_better = better == "more";
    f.counted = one.flag("counted", false);
    f.value = interval_from(one.at("value"));
    for (const JsonPart& sample : one.has("samples") ? one.at("samples").list() : std::vector<JsonPart>()) {
      f.samples.push_back(sample.number());
    }
  }
  return r;
}

}  // namespace fsdpbench::app
