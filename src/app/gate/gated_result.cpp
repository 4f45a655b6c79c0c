#include "app/gate/gated_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "app/acceptance/judgement_files.h"
#include "app/experiment/trial_json.h"
#include "app/experiment/trial_log.h"
#include "app/report/compare_report.h"
#include "app/report/result_file.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/read_input.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using accept::MeasuredFigure;
using nlohmann::json;

constexpr std::int64_t kMostSamples = 1'000'000'000;

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

/// Results that measured a message twice, or two sizes that are written alike, have both.
void add_figure(MeasuredFigure f, GatedResult& result) {
  std::vector<MeasuredFigure>& all = result.figures.figures;
  while (std::ranges::find(all, f.name, &MeasuredFigure::name) != all.end()) f.name += ", again";
  all.push_back(std::move(f));
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
    add_figure(std::move(f), result);
  }
  if (!j.has("arms")) return;
  for (const auto& [key, name] : {std::pair{"computation_ms", "computation of a step, alone"},
                                  {"communication_ms", "communication of a step, alone"},
                                  {"whole_ms", "step"}}) {
    std::vector<double> rounds;
    for (const JsonPart& round : j.at("arms").at("rounds").list()) rounds.push_back(round.at(key).number());
    if (!rounds.empty()) add_figure(figure(name, "ms", std::move(rounds)), result);
  }
}

void read_run_result(const JsonPart& j, const ResultFile& file, GatedResult& result) {
  result.measured = j.at("config").value();
  for (const char* table : {"trace", "checkpoint"}) result.measured.erase(table);  // nothing of what is measured
  if (result.measured.contains("train")) {
    for (const char* key : {"steps", "warmup"}) result.measured["train"].erase(key);  // how often
  }
  if (std::string why = why_unfinished(file); !why.empty()) {
    result.not_accepted_because = std::move(why);
  } else if (!j.at("complete").flag()) {
    result.not_accepted_because = "the run was stopped before its last step";
  } else if (j.has("diverged_because")) {
    result.not_accepted_because = "training diverged: " + j.at("diverged_because").text();
  } else if (j.has("metrics") && !j.at("rated").flag()) {
    result.not_accepted_because = "it is not rated: " + j.text("not_rated_because", "the file does not say why");
  }
  if (!j.has("metrics")) throw ConfigError("no measured step was completed, so there is nothing to compare");
  const Trial trial = trial_from_json(j);
  add_figure(figure("step time", "ms", trial.metrics->steps_ms), result);
  for (const auto& [name, value] : metric_numbers(trial)) {
    if (name == "exposed_comm_ms" || name == "compute_ms") {
      MeasuredFigure f = figure(std::string(name.substr(0, name.size() - 3)), "ms", {value});
      f.explains = true;
      add_figure(std::move(f), result);
    }
  }
  add_figure(counted("peak memory", static_cast<double>(trial.memory.peak_occupied_total)), result);
  const plan::CommunicationVolume& wire = trial.wire;
  add_figure(counted("bytes on the wire", wire.all_gather + wire.reduce_scatter + wire.all_reduce + wire.all_to_all),
             result);
}

/// The median step of every trial, by cell; empty if the log is not there.
std::map<std::string, std::vector<double>> trials_of(const fs::path& log) {
  std::map<std::string, std::vector<double>> by_cell;
  if (!path_exists(log) || is_no_plain_file(log)) return by_cell;
  const std::string text = read_input(log, kMostOfALog, "expected the log of a sweep");
  for (const LoggedTrial& logged : parse_trials(text, log.string()).trials) {
    if (logged.trial && logged.trial->metrics) {
      by_cell[logged.cell].push_back(metrics::median(logged.trial->metrics->steps_ms));
    }
  }
  return by_cell;
}

void read_sweep_result(const JsonPart& j, const fs::path& file, GatedResult& result) {
  result.measured = {{"sweep", j.at("sweep_hash").value()}};
  if (!j.has("world")) throw ConfigError("no trial was completed, so there is nothing to compare");
  if (j.at("mixed_worlds").flag()) result.not_accepted_because = "its trials come from different machines or programs";
  if (!j.at("complete").flag()) result.not_accepted_because = "the sweep is not complete";
  const auto trials = trials_of(file.parent_path() / "trials.jsonl");
  for (const JsonPart& cell : j.at("cells").list()) {
    const std::string id = cell.at("id").text();
    if (cell.at("status").text() != "ok" && result.not_accepted_because.empty()) {
      result.not_accepted_because =
          fmt::format("cell {} is {}: {}", id, cell.at("status").text(), cell.text("reason", ""));
    }
    if (!cell.has("metrics")) continue;
    if (!cell.at("rated").flag() && result.not_accepted_because.empty()) {
      result.not_accepted_because = fmt::format("cell {} is not rated: {}", id, cell.text("not_rated_because", ""));
    }
    const JsonPart step = cell.at("metrics").at("step_ms");
    const auto found = trials.find(id);
    MeasuredFigure f =
        figure("step time of " + id, "ms", found == trials.end() ? std::vector<double>{} : found->second);
    if (f.samples.empty()) {
      f.value = {step.at("median").number(), step.at("ci_low").number(), step.at("ci_high").number(),
                 static_cast<int>(step.at("n").whole(1, kMostSamples))};
    } else if (std::abs(f.value.median / step.at("median").number() - 1) > 1e-9) {
      throw ConfigError(fmt::format("its step time of {} is {} ms, and that of trials.jsonl beside it {} ms", id,
                                    step.at("median").number(), f.value.median));
    }
    add_figure(std::move(f), result);
    const std::int64_t peak = cell.at("memory").at("peak_bytes").at("total").size();
    add_figure(counted("peak memory of " + id, static_cast<double>(peak)), result);
  }
}

void read_collectives_result(const JsonPart& j, GatedResult& result) {
  result.measured = {{"collectives", true}};
  for (const JsonPart& operation : j.at("operations").list()) {
    const std::string op = operation.at("name").text();
    const JsonPart wrong = operation.at("out_of_bounds");
    const bool checked = !wrong.value().is_null();
    if (checked && !wrong.at("okay").flag()) {
      result.not_accepted_because = op + " gave wrong results";
    } else if (!checked && result.not_accepted_because.empty()) {
      result.not_accepted_because = op + " was not checked for wrong results (-c 0)";
    }
    for (const JsonPart& row : operation.at("results").list()) {
      for (const char* half : {"out_of_place", "in_place"}) {
        if (!row.at(half).value().is_object()) continue;
        std::vector<double> times;
        for (const JsonPart& us : row.at(half).at("per_iteration").at("times_us").list()) times.push_back(us.number());
        std::string name = fmt::format("{} of {} B, {}{}", op, row.at("size").size(), row.at("type").text(),
                                       std::string_view(half) == "in_place" ? ", in place" : "");
        add_figure(figure(std::move(name), "us", std::move(times)), result);
      }
    }
  }
}

/// Figures that nothing measures, or of which nobody knows which one is meant.
void check_figures(const std::vector<MeasuredFigure>& figures) {
  if (figures.empty()) throw ConfigError("it has no figure to compare");
  std::set<std::string_view> names;
  for (const MeasuredFigure& f : figures) {
    const accept::Interval& v = f.value;
    if (!names.insert(f.name).second) throw ConfigError(fmt::format("it has two figures of the name '{}'", f.name));
    if (v.n >= 1 && 0 <= v.low && v.low <= v.median && v.median <= v.high &&
        std::ranges::all_of(f.samples, [](double sample) { return sample >= 0; })) {
      continue;
    }
    throw ConfigError(fmt::format(
        "its figure '{}' is {} {} ({} to {}, of {} values): expected a median from 0 on within its interval, of one "
        "value or more",
        f.name, v.median, f.unit, v.low, v.high, v.n));
  }
}

}  // namespace

GatedResult read_gated_result(const std::string& given) {
  const ResultFile file = read_any_result(given);
  const JsonPart j(file.content);
  GatedResult result;
  result.name = name_of_result(file.path);
  result.figures.name = result.name;
  result.kind = to_string(file.kind);
  try {
    switch (file.kind) {
      case ResultKind::run: read_run_result(j, file, result); break;
      case ResultKind::acceptance: read_acceptance_result(j, result); break;
      case ResultKind::sweep: read_sweep_result(j, file.path, result); break;
      case ResultKind::collectives: read_collectives_result(j, result); break;
    }
    check_figures(result.figures.figures);
    result.machine = MachinePrint::of_world(j.at("world"));
    result.date = j.at("world").text("date", "");
  } catch (const ConfigError& error) {
    std::string why = error.what();
    if (why.ends_with('.')) why.pop_back();
    throw ConfigError(fmt::format("{}: {}.", file.path, why));
  }
  if (!file.has_digest) {
    result.not_accepted_because += result.not_accepted_because.empty() ? "" : "; ";
    result.not_accepted_because += "it has no digest (schema_version 1), so nobody knows that it is whole";
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
    if (f.explains) one["explains"] = true;
    if (!f.samples.empty()) one["samples"] = f.samples;
    j["figures"].push_back(std::move(one));
  }
  j["digest"] = json_digest(j);
  return j;
}

GatedResult gated_result_from_json(const JsonPart& j) {
  GatedResult r;
  if (j.has("digest") && j.at("digest").text() != json_digest(j.value())) {
    j.at("digest").refuse(
        fmt::format("{}: the result was changed after it was added, or is damaged", json_digest(j.value())));
  }
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
    f.explains = one.flag("explains", false);
    f.value = interval_from(one.at("value"));
    for (const JsonPart& sample : one.has("samples") ? one.at("samples").list() : std::vector<JsonPart>()) {
      f.samples.push_back(sample.number());
    }
  }
  try {
    check_figures(r.figures.figures);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("the result '{}': {}", r.name, error.what()));
  }
  return r;
}

}  // namespace fsdpbench::app
