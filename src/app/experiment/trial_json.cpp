#include "app/experiment/trial_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "base/error.h"
#include "metrics/caveats.h"

namespace fsdpbench::app {
namespace {

using metrics::RunMetrics;
using nlohmann::json;

/// The numbers of RunMetrics that stand under their own names; a new one is a line here.
struct MetricField {
  const char* name;
  std::variant<double RunMetrics::*, std::optional<double> RunMetrics::*> value;
};
const MetricField kMetricFields[] = {
    {"compute_ms", &RunMetrics::compute_ms},
    {"comm_ms", &RunMetrics::comm_ms},
    {"exposed_comm_ms", &RunMetrics::exposed_comm_ms},
    {"exposed_copy_ms", &RunMetrics::exposed_copy_ms},
    {"idle_ms", &RunMetrics::idle_ms},
    {"overlap_pct", &RunMetrics::overlap_pct},
    {"tokens_per_s", &RunMetrics::tokens_per_s},
    {"step_over_bound", &RunMetrics::bound_ratio},
    {"aa_noise_pct", &RunMetrics::aa_noise_pct},
};

json summary_json(const metrics::Summary& s) {
  return {{"median", s.median},
          {"ci_low", s.ci_low},
          {"ci_high", s.ci_high},
          {"interval", to_string(s.interval)},
          {"min", s.min},
          {"max", s.max},
          {"n", s.n}};
}

metrics::Summary summary_from(const json& j) {
  const int n = j.at("n");
  return {j.at("median"), j.at("ci_low"), j.at("ci_high"), metrics::interval_of(n), j.at("min"), j.at("max"), n};
}

json fidelity_json(const metrics::Fidelity& fidelity) {
  json j{{"excess_pct", fidelity.excess_pct}, {"limit_pct", metrics::kFidelityLimitPct}};
  const auto add = [&](const char* name, const std::optional<metrics::ModelledTime>& time) {
    if (time) j[name] = {{"modelled_ms", time->modelled_ms}, {"observed_ms", time->observed_ms}};
  };
  add("compute", fidelity.compute);
  add("transfer", fidelity.transfer);
  return j;
}

metrics::Fidelity fidelity_from(const json& j) {
  const auto time = [&](const char* name) -> std::optional<metrics::ModelledTime> {
    if (!j.contains(name)) return std::nullopt;
    return metrics::ModelledTime{j.at(name).at("modelled_ms"), j.at(name).at("observed_ms")};
  };
  return {time("compute"), time("transfer"), j.at("excess_pct")};
}

json metrics_json(const Trial& trial) {
  const RunMetrics& m = *trial.metrics;
  json j{{"step_ms", summary_json(m.step_ms)}};
  for (const auto& [name, value] : metric_numbers(trial)) j[std::string(name)] = value;
  if (m.settling) {
    j["unsettled_steps"] = m.settling->unsettled;  // a whole number
    j["never_settled"] = m.settling->never_settled;
  }
  if (trial.fidelity) j["emulation_fidelity"] = fidelity_json(*trial.fidelity);
  for (const metrics::RankMetrics& rank : m.ranks) {
    j["ranks"].push_back({{"step_ms", summary_json(rank.step_ms)},
                          {"compute_ms", rank.compute_ms},
                          {"exposed_comm_ms", rank.exposed_comm_ms},
                          {"exposed_copy_ms", rank.exposed_copy_ms},
                          {"idle_ms", rank.idle_ms}});
    if (rank.overlap_pct) j["ranks"].back()["overlap_pct"] = *rank.overlap_pct;
  }
  return j;
}

void read_metrics(const json& j, Trial& trial) {
  RunMetrics& m = trial.metrics.emplace();
  m.step_ms = summary_from(j.at("step_ms"));
  for (const MetricField& field : kMetricFields) {
    if (const auto* always = std::get_if<double RunMetrics::*>(&field.value)) {
      m.*(*always) = j.at(field.name);
    } else if (j.contains(field.name)) {
      m.*std::get<std::optional<double> RunMetrics::*>(field.value) = j.at(field.name).get<double>();
    }
  }
  if (j.contains("unsettled_steps")) m.settling = {j.at("unsettled_steps"), j.at("never_settled")};
  for (const json& rank : j.value("ranks", json::array())) {
    m.ranks.push_back({summary_from(rank.at("step_ms")),
                       rank.at("compute_ms"),
                       rank.at("exposed_comm_ms"),
                       rank.value("exposed_copy_ms", 0.0),
                       rank.at("idle_ms"),
                       {}});
    if (rank.contains("overlap_pct")) m.ranks.back().overlap_pct = rank.at("overlap_pct").get<double>();
  }
  if (j.contains("model_tflops_per_rank")) {
    metrics::ModelFlops& flops = trial.flops.emplace();
    flops.per_rank_and_step = j.at("model_flops_per_rank_and_step");
    flops.tflops_per_rank = j.at("model_tflops_per_rank");
    if (j.contains("mfu_pct")) flops.mfu_pct = j.at("mfu_pct").get<double>();
  }
  if (j.contains("emulation_fidelity")) trial.fidelity = fidelity_from(j.at("emulation_fidelity"));
}

json cause_json(const metrics::CauseShare& c) {
  json j{{"cause", metrics::to_string(c.cause)}, {"ms", c.ms}, {"share_pct", c.share_pct}, {"advice", c.advice}};
  if (!c.unit.empty()) j["unit"] = c.unit;
  if (!c.op.empty()) j["op"] = c.op;
  if (c.late_rank >= 0) j["late_rank"] = c.late_rank;
  return j;
}

metrics::CauseShare cause_from(const json& j) {
  metrics::CauseShare c;
  const std::string name = j.at("cause");
  std::size_t i = 0;
  while (i < metrics::kCauseCount && metrics::to_string(static_cast<metrics::Cause>(i)) != name) ++i;
  if (i == metrics::kCauseCount) throw ConfigError(fmt::format("there is no cause \"{}\"", name));
  c.cause = static_cast<metrics::Cause>(i);
  c.ms = j.at("ms");
  c.share_pct = j.at("share_pct");
  c.advice = j.at("advice");
  c.unit = j.value("unit", "");
  c.op = j.value("op", "");
  c.late_rank = j.value("late_rank", -1);
  return c;
}

json categories_json(const PoolStatistics& memory) {
  json j{{"total", memory.peak_occupied_total}};
  for (MemoryCategory c : kMemoryCategories) j[std::string(to_string(c))] = memory.peak_occupied[index_of(c)];
  return j;
}

void read_categories(const json& j, PoolStatistics& memory) {
  memory.peak_occupied_total = j.at("total");
  for (MemoryCategory c : kMemoryCategories) memory.peak_occupied[index_of(c)] = j.at(std::string(to_string(c)));
}

json wire_json(const plan::CommunicationVolume& v) {
  return {{"all_gather", std::llround(v.all_gather)},
          {"reduce_scatter", std::llround(v.reduce_scatter)},
          {"all_reduce", std::llround(v.all_reduce)}};
}

plan::CommunicationVolume wire_from(const json& j) {
  return {j.at("all_gather"), j.at("reduce_scatter"), j.at("all_reduce")};
}

std::vector<double> steps_from(const json& j) {
  std::vector<double> steps;
  for (const json& step : j.contains("steps_ms") ? j.at("steps_ms") : j.at("steps").at("slowest_rank_ms")) {
    if (!step.is_number() || !(step.get<double>() > 0)) throw ConfigError("a step time is no positive number");
    steps.push_back(step);
  }
  if (steps.empty()) throw ConfigError("it has no steps");
  return steps;
}

Trial read_trial(const json& j) {
  Trial trial;
  trial.world = world_from_json(j.at("world"));
  trial.interrupted = !j.value("complete", true);
  trial.seconds = j.value("seconds", 0.0);
  const json& memory = j.at("memory");
  read_categories(memory.at("peak_bytes"), trial.memory);
  trial.memory.reserved = memory.at("reserved_bytes");
  read_categories(memory.at("estimated_peak_bytes"), trial.estimated_memory);
  if (!j.contains("metrics")) return trial;
  read_metrics(j.at("metrics"), trial);
  trial.metrics->steps_ms = steps_from(j);
  trial.wire = wire_from(j.at("comm").at("wire_bytes_per_rank"));
  trial.expected_wire = wire_from(j.at("comm").at("expected_wire_bytes_per_rank"));
  metrics::CauseReport& causes = trial.causes.emplace();
  causes.step_ms = trial.metrics->step_ms.median;
  causes.stalled_ms = j.at("stalled_ms");
  for (const json& caveat : j.value("caveats", json::array())) trial.caveats.push_back(caveat);
  if (!j.value("rated", true)) return trial;
  causes.small_ms = j.at("causes_small_ms");
  for (const json& cause : j.at("causes")) causes.causes.push_back(cause_from(cause));
  return trial;
}

}  // namespace

std::vector<std::pair<std::string_view, double>> metric_numbers(const Trial& trial) {
  std::vector<std::pair<std::string_view, double>> numbers;
  if (!trial.metrics) return numbers;
  for (const MetricField& field : kMetricFields) {
    if (const auto* always = std::get_if<double RunMetrics::*>(&field.value)) {
      numbers.emplace_back(field.name, *trial.metrics.*(*always));
    } else if (const auto& value = *trial.metrics.*std::get<std::optional<double> RunMetrics::*>(field.value)) {
      numbers.emplace_back(field.name, *value);
    }
  }
  if (trial.metrics->settling) numbers.emplace_back("unsettled_steps", trial.metrics->settling->unsettled);
  if (trial.flops) {
    numbers.emplace_back("model_flops_per_rank_and_step", trial.flops->per_rank_and_step);
    numbers.emplace_back("model_tflops_per_rank", trial.flops->tflops_per_rank);
    if (trial.flops->mfu_pct) numbers.emplace_back("mfu_pct", *trial.flops->mfu_pct);
  }
  return numbers;
}

json to_json(const Trial& trial) {
  json j{{"world", to_json(trial.world)}, {"seconds", trial.seconds}};
  j["memory"] = {{"peak_bytes", categories_json(trial.memory)},
                 {"reserved_bytes", trial.memory.reserved},
                 {"estimated_peak_bytes", categories_json(trial.estimated_memory)}};
  if (trial.metrics) {
    j["metrics"] = metrics_json(trial);
    j["steps_ms"] = trial.metrics->steps_ms;
    j["comm"] = {{"wire_bytes_per_rank", wire_json(trial.wire)},
                 {"expected_wire_bytes_per_rank", wire_json(trial.expected_wire)}};
  }
  if (!trial.caveats.empty()) j["caveats"] = trial.caveats;
  if (trial.causes) {
    j["stalled_ms"] = trial.causes->stalled_ms;
    const std::string why = metrics::why_not_rated(trial.fidelity);
    j["rated"] = why.empty();
    if (!why.empty()) {
      j["not_rated_because"] = why;
      return j;
    }
    j["causes_small_ms"] = trial.causes->small_ms;
    j["causes"] = json::array();
    for (const metrics::CauseShare& c : trial.causes->causes) j["causes"].push_back(cause_json(c));
  }
  return j;
}

Trial trial_from_json(const json& j) {
  try {
    return read_trial(j);
  } catch (const json::exception& error) {
    // nlohmann's texts begin with a number of its own: "[json.exception.out_of_range.403] key 'world' not found".
    const std::string text = error.what();
    const std::size_t end = text.find("] ");
    throw ConfigError(end == std::string::npos ? text : text.substr(end + 2));
  }
}

}  // namespace fsdpbench::app
