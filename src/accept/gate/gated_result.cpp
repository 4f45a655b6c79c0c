#include "accept/gate/gated_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "accept/stages/judgement_files.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "config/write.h"
#include "hardware/other_work.h"
#include "runs/compare_report.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "runs/world.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using accept::MeasuredFigure;
using nlohmann::json;

/// Also of the name of its folder: result.json says nothing.
std::string name_of_result(const fs::path& file) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(file, error);
  return file.filename() == "result.json" ? whole.parent_path().filename().string() : file.stem().string();
}

MeasuredFigure figure(std::string name, std::string unit, std::vector<double> samples) {
  MeasuredFigure f;
  f.name = std::move(name);
  f.unit = std::move(unit);
  f.value = accept::median_interval(samples);
  f.samples = std::move(samples);
  return f;
}

/// Results that measured a message twice, or two sizes that are written alike, have both.
void add_figure(MeasuredFigure f, GatedResult& result) {
  std::vector<MeasuredFigure>& all = result.figures.figures;
  while (std::ranges::find(all, f.name, &MeasuredFigure::name) != all.end()) f.name += ", again";
  all.push_back(std::move(f));
}

/// Rules whose figures are measurements that may get worse, with their direction. Others say the same figure again
/// (ceiling), or something of this run alone (peers, inventory).
struct MeasuredRule {
  const char* rule;
  bool higher_is_better;
};
constexpr std::array kMeasuredRules{MeasuredRule{"floor", true}, MeasuredRule{"tail", false},
                                    MeasuredRule{"exposed communication", false}, MeasuredRule{"slow-down", false},
                                    MeasuredRule{"latency", false}};

/// A configuration without the keys that change nothing of what is measured, but how often it is, and without faults:
/// a failure that was rehearsed is gated as one that came by itself. `injected` gets those.
json without_how_often(const JsonPart& part, std::vector<std::string>& injected) {
  for (const auto& [name, table] : part.members()) (void)table.members();
  json config = part.value();
  static const json kNone = config::to_json(config::RunConfig{})["inject"];
  const json faults = config.value("inject", json::object());
  for (const auto& [key, value] : faults.items()) {
    if (!kNone.contains(key) || value != kNone[key])
      injected.push_back(fmt::format("inject.{} = {}", key, value.dump()));
  }
  for (const char* table : {"trace", "checkpoint", "inject"}) config.erase(table);
  if (config.contains("train")) {
    for (const char* key : {"steps", "warmup"}) config["train"].erase(key);
  }
  return config;
}

void read_acceptance_result(const JsonPart& j, GatedResult& result) {
  result.measured = {
      {"fabric", j.at("fabric").text()}, {"ranks", j.at("ranks").value()}, {"nodes", j.at("nodes").value()}};
  if (j.has("settings")) {
    json settings = j.at("settings").value();
    settings["config"] = without_how_often(j.at("settings").at("config"), result.injected);
    result.measured["settings"] = std::move(settings);
  }
  if (const std::string verdict = j.at("verdict").text(); verdict != "pass") {
    result.not_accepted_because = fmt::format("its verdict is {}", verdict);
  }
  std::vector<accept::Judgement> judgements;
  JsonType<std::vector<accept::Judgement>>::read(j.at("judgements"), judgements);
  if (const auto all = to_string(accept::overall(judgements)); j.at("verdict").text() != all) {
    j.at("verdict").refuse(fmt::format("\"{}\", as the judgements have it", all));
  }
  for (const accept::Judgement& judgement : judgements) {
    const auto* const known = std::ranges::find(kMeasuredRules, judgement.rule, &MeasuredRule::rule);
    if (known == kMeasuredRules.end() || judgement.value.n == 0) continue;
    MeasuredFigure f;
    f.name = judgement.figure;
    if (judgement.rule == "tail") f.name += ", time";
    f.unit = judgement.unit;
    f.higher_is_better = known->higher_is_better;
    f.value = judgement.value;
    if (judgement.rule == "exposed communication") {  // shares may be 0, which has no ratio; the rest of a step has one
      f.name = "share of a step without exposed communication, " + f.name;
      f.higher_is_better = true;
      f.value = {1 - f.value.median, 1 - f.value.high, 1 - f.value.low, f.value.n};
    }
    add_figure(std::move(f), result);
  }
  if (!j.has("arms")) return;
  std::vector<accept::ArmRound> rounds;
  JsonType<std::vector<accept::ArmRound>>::read(j.at("arms").at("rounds"), rounds);
  if (rounds.empty()) return;
  for (const auto& [time, name] : {std::pair{&accept::ArmRound::computation_ms, "computation of a step, alone"},
                                   {&accept::ArmRound::communication_ms, "communication of a step, alone"},
                                   {&accept::ArmRound::whole_ms, "step"}}) {
    std::vector<double> times;
    for (const accept::ArmRound& round : rounds) times.push_back(round.*time);
    add_figure(figure(name, "ms", std::move(times)), result);
  }
}

void read_run_result(const JsonPart& j, const ResultFile& file, GatedResult& result) {
  result.measured = without_how_often(j.at("config"), result.injected);
  if (!j.has("metrics")) throw NotGated("no measured step was completed, so there is nothing to compare");
  if (std::string why = why_unfinished(file); !why.empty()) {
    result.not_accepted_because = std::move(why);
  } else if (!j.at("complete").flag()) {
    result.not_accepted_because = "the run was stopped before its last step";
  } else if (j.has("diverged_because")) {
    result.not_accepted_because = "training diverged: " + j.at("diverged_because").text();
  } else if (!j.at("rated").flag()) {
    result.not_accepted_because = "it is not rated: " + j.text("not_rated_because", "the file does not say why");
  }
  const Trial trial = trial_from_json(j);
  result.figures.others_share = disturbing_share(trial);
  for (const TrialFigure& f : figures_of(trial)) {
    const FigureFacts& facts = f.field->figure;
    if (facts.gated == Gated::no) continue;
    const bool steps = f.path == "metrics.step_ms";
    MeasuredFigure measured =
        figure(facts.label, f.field->unit, steps ? trial.metrics->steps_ms : std::vector{f.value});
    measured.higher_is_better = facts.better == Better::more;
    measured.counted = f.field->unit == "B";
    measured.explains = facts.gated == Gated::explains;
    add_figure(std::move(measured), result);
  }
}

/// Refuses figures below 0.
void check_figures(const std::vector<MeasuredFigure>& figures) {
  if (figures.empty()) throw ConfigError("it has no figure to compare");
  for (const MeasuredFigure& f : figures) {
    const accept::Interval& v = f.value;
    if (v.low >= 0) continue;
    throw ConfigError(fmt::format("its figure '{}' is {} {} ({} to {}, of {} values): expected values from 0 on",
                                  f.name, v.median, f.unit, v.low, v.high, v.n));
  }
}

using Fact = MachinePrint::Fact;
using Part = MachinePrint::Part;

/// The GPUs by model, without their places on the bus: "8 x NVIDIA H100 80GB HBM3 (sm_90)".
std::string gpus(const World& world) {
  std::map<std::string, int> models;
  for (const World::RankPlace& place : world.places) {
    for (const auto& [name, value] : place.device) {
      if (name == "GPU") ++models[value.substr(0, value.find(", PCI"))];
    }
  }
  std::string text;
  for (const auto& [model, count] : models) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, model);
  return text;
}

std::size_t nodes(const World& world) {
  std::set<std::string> hosts;
  for (const World::RankPlace& place : world.places) hosts.insert(place.host);
  return hosts.size();
}

/// Whether a fact of a rank's device is about the software under it.
bool is_software(std::string_view fact) { return fact == "CUDA" || fact == "nccl" || fact.starts_with("nccl "); }
/// These are counted and measured anew in every run.
bool changes_by_itself(std::string_view fact) { return fact == "nccl launches" || fact == "nccl windows"; }

}  // namespace

GatedResult read_gated_result(const std::string& given) {
  const ResultFile file = read_any_result(given);
  const JsonPart j(file.content);
  GatedResult result;
  result.name = name_of_result(file.path);
  result.kind = to_string(file.kind);
  try {
    if (file.kind == ResultKind::run) {
      read_run_result(j, file, result);
    } else if (file.kind == ResultKind::acceptance) {
      read_acceptance_result(j, result);
    } else {
      throw NotGated(fmt::format("it is a result of {}; expected one of accept, run or simulate", result.kind));
    }
    check_figures(result.figures.figures);
    result.machine = MachinePrint::of_world(j.at("world"));
    result.figures.name = result.name;
    const std::string backend = result.machine.value("backend");
    result.figures.measured_on = backend == "virtual" ? accept::MeasuredOn::computed_clock
                                 : backend == "cpu"   ? accept::MeasuredOn::processors
                                                      : accept::MeasuredOn::gpus;
    result.date = j.at("world").text("date", "");
    result.digest = j.at("digest").text();
    if (result.kind == to_string(ResultKind::acceptance) && j.has("others_share")) {
      check_share(j.at("others_share"));
      const double share = j.at("others_share").number();
      if (backend == "cpu" && share >= kQuietShare) result.figures.others_share = share;
    }
  } catch (const ConfigError& error) {
    std::string why = error.what();
    if (why.ends_with('.')) why.pop_back();
    why = fmt::format("{}: {}.", file.path, why);
    if (dynamic_cast<const NotGated*>(&error) != nullptr) throw NotGated(why);
    throw ConfigError(why);
  }
  return result;
}

std::string_view to_string(Part part) {
  constexpr EnumNames<Part> kNames{"hardware", "software", "program"};
  return kNames[part];
}

MachinePrint MachinePrint::of_world(const JsonPart& world) {
  const World w = fields<World>().read(world);
  MachinePrint print;
  const auto add = [&](std::string name, std::string value, Part part) {
    if (!value.empty()) print.facts_.push_back({std::move(name), std::move(value), part});
  };
  const auto hardware = [&](std::string name, std::string value) {
    add(std::move(name), std::move(value), Part::hardware);
  };
  const auto software = [&](std::string name, std::string value) {
    add(std::move(name), std::move(value), Part::software);
  };
  hardware("backend", w.backend);
  hardware("ranks", fmt::format("{}", w.ranks));
  if (!w.simulated()) {  // a computed clock is the same everywhere
    hardware("processor", w.cpu);
    hardware("hardware threads", fmt::format("{}", w.threads));
    // A kernel keeps some of it: the same memory is not the same number of bytes under another one.
    hardware("memory", fmt::format("{:.0f} GiB", std::round(static_cast<double>(w.memory_bytes) / (1 << 30))));
    hardware("GPUs", gpus(w));
    if (const std::size_t count = nodes(w); count > 0) hardware("nodes", fmt::format("{}", count));
    hardware("ranks are", w.transport.empty() ? "threads of one process" : "processes, " + w.transport);
    if (w.emulated_link) hardware("links", "emulated");
    if (w.emulated_compute) hardware("computation", "emulated");
    software("kernel", w.kernel);
    software("scheduling", w.realtime);
    for (const auto& [name, version] : w.libraries) software(name, version);
    for (const auto& [name, value] : w.places.empty() ? backend::Facts{} : w.places.front().device) {
      if (is_software(name) && !changes_by_itself(name)) software(name, value);
    }
  }
  software("compiler", w.program.compiler);
  software("build", w.program.build_type);
  software("sanitizers", w.program.sanitize);
  add("fsdpbench", w.program.version, Part::program);
  add("git revision", w.program.git_revision + (w.program.git_dirty ? " with changes" : ""), Part::program);
  return print;
}

nlohmann::json MachinePrint::to_json() const {
  nlohmann::json j = nlohmann::json::object();
  for (const Fact& fact : facts_) j[to_string(fact.part)].push_back({{"name", fact.name}, {"value", fact.value}});
  return j;
}

std::string MachinePrint::value(std::string_view name) const {
  const auto found = std::ranges::find(facts_, name, &Fact::name);
  return found == facts_.end() ? std::string() : found->value;
}

std::string MachinePrint::summary() const {
  std::string what = value("GPUs");
  if (what.empty()) what = value("processor");
  if (what.empty()) what = value("backend") == "virtual" ? "computed clock" : "unknown machine";
  return fmt::format("{}, {} ranks", what, value("ranks"));
}

std::vector<MachineDifference> differences(const MachinePrint& before, const MachinePrint& now) {
  std::vector<MachineDifference> all;
  for (const Fact& fact : before.facts()) {
    const std::string other = now.value(fact.name);
    if (other != fact.value) all.push_back({fact.name, fact.value, other, fact.part});
  }
  for (const Fact& fact : now.facts()) {
    if (before.value(fact.name).empty()) all.push_back({fact.name, "", fact.value, fact.part});
  }
  std::ranges::stable_sort(all, {}, &MachineDifference::part);
  return all;
}

}  // namespace fsdpbench::app
