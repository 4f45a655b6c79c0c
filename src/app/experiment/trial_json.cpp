#include "app/experiment/trial_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "app/console/json_part.h"
#include "app/experiment/cause_json.h"
#include "app/experiment/summary_json.h"
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

constexpr std::int64_t kMost = 1'000'000'000;  // steps, ranks

json fidelity_json(const metrics::Fidelity& fidelity) {
  json j{{"excess_pct", fidelity.excess_pct}, {"limit_pct", metrics::kFidelityLimitPct}};
  const auto add = [&](const char* name, const std::optional<metrics::ModelledTime>& time) {
    if (time) j[name] = {{"modelled_ms", time->modelled_ms}, {"observed_ms", time->observed_ms}};
  };
  add("compute", fidelity.compute);
  add("transfer", fidelity.transfer);
  return j;
}

metrics::Fidelity fidelity_from(const JsonPart& j) {
  const auto time = [&](const char* name) -> std::optional<metrics::ModelledTime> {
    if (!j.has(name)) return std::nullopt;
    return metrics::ModelledTime{j.at(name).at("modelled_ms").number(), j.at(name).at("observed_ms").number()};
  };
  return {time("compute"), time("transfer"), j.at("excess_pct").number()};
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
    j["ranks"].push_back({{"rank", rank.rank},
                          {"step_ms", summary_json(rank.step_ms)},
                          {"compute_ms", rank.compute_ms},
                          {"exposed_comm_ms", rank.exposed_comm_ms},
                          {"exposed_copy_ms", rank.exposed_copy_ms},
                          {"idle_ms", rank.idle_ms}});
    if (rank.overlap_pct) j["ranks"].back()["overlap_pct"] = *rank.overlap_pct;
    for (std::size_t g = 0; g < plan::kGroupCount; ++g) {
      if (rank.transfer_ms[g] <= 0) continue;
      j["ranks"].back()["transfer_ms"][std::string(to_string(static_cast<plan::Group>(g)))] = rank.transfer_ms[g];
    }
  }
  return j;
}

void read_metrics(const JsonPart& j, Trial& trial) {
  RunMetrics& m = trial.metrics.emplace();
  m.step_ms = summary_from(j.at("step_ms"));
  for (const MetricField& field : kMetricFields) {
    if (const auto* always = std::get_if<double RunMetrics::*>(&field.value)) {
      m.*(*always) = j.at(field.name).number();
    } else if (j.has(field.name)) {
      m.*std::get<std::optional<double> RunMetrics::*>(field.value) = j.at(field.name).number();
    }
  }
  if (j.has("unsettled_steps")) {
    m.settling = {static_cast<int>(j.at("unsettled_steps").whole(0, kMost)), j.at("never_settled").flag()};
  }
  for (const JsonPart& rank : j.has("ranks") ? j.at("ranks").list() : std::vector<JsonPart>()) {
    const int number =
        rank.has("rank") ? static_cast<int>(rank.at("rank").whole(0, kMost)) : static_cast<int>(m.ranks.size());
    m.ranks.push_back({number,
                       summary_from(rank.at("step_ms")),
                       rank.at("compute_ms").number(),
                       rank.at("exposed_comm_ms").number(),
                       rank.number("exposed_copy_ms", 0),
                       rank.at("idle_ms").number(),
                       {},
                       {}});
    if (rank.has("overlap_pct")) m.ranks.back().overlap_pct = rank.at("overlap_pct").number();
    for (std::size_t g = 0; rank.has("transfer_ms") && g < plan::kGroupCount; ++g) {
      m.ranks.back().transfer_ms[g] =
          rank.at("transfer_ms").number(std::string(to_string(static_cast<plan::Group>(g))), 0);
    }
  }
  if (j.has("model_tflops_per_rank")) {
    metrics::ModelFlops& flops = trial.flops.emplace();
    flops.per_rank_and_step = j.at("model_flops_per_rank_and_step").number();
    flops.tflops_per_rank = j.at("model_tflops_per_rank").number();
    if (j.has("mfu_pct")) flops.mfu_pct = j.at("mfu_pct").number();
  }
  if (j.has("emulation_fidelity")) trial.fidelity = fidelity_from(j.at("emulation_fidelity"));
}

json categories_json(const PoolStatistics& memory) {
  json j{{"total", memory.peak_occupied_total}};
  for (MemoryCategory c : kMemoryCategories) j[std::string(to_string(c))] = memory.peak_occupied[index_of(c)];
  return j;
}

void read_categories(const JsonPart& j, PoolStatistics& memory) {
  memory.peak_occupied_total = j.at("total").size();
  for (MemoryCategory c : kMemoryCategories) memory.peak_occupied[index_of(c)] = j.at(to_string(c)).size();
}

json wire_json(const plan::CommunicationVolume& v) {
  return {{"all_gather", std::llround(v.all_gather)},
          {"reduce_scatter", std::llround(v.reduce_scatter)},
          {"all_reduce", std::llround(v.all_reduce)},
          {"all_to_all", std::llround(v.all_to_all)}};
}

plan::CommunicationVolume wire_from(const JsonPart& j) {
  // Files of earlier programs know no exchanges.
  const double exchanged = j.has("all_to_all") ? j.at("all_to_all").number() : 0;
  return {j.at("all_gather").number(), j.at("reduce_scatter").number(), j.at("all_reduce").number(), exchanged};
}

std::vector<double> steps_from(const JsonPart& j) {
  const JsonPart times = j.has("steps_ms") ? j.at("steps_ms") : j.at("steps").at("slowest_rank_ms");
  std::vector<double> steps;
  for (const JsonPart& step : times.list()) {
    steps.push_back(step.number());
    if (!(steps.back() > 0)) step.refuse("a step time, which is positive");
  }
  if (steps.empty()) times.refuse("step times");
  return steps;
}

}  // namespace

Trial trial_from_json(const JsonPart& j) {
  Trial trial;
  trial.world = world_from_json(j.at("world"));
  trial.interrupted = !j.flag("complete", true);
  trial.seconds = j.number("seconds", 0);
  const JsonPart memory = j.at("memory");
  read_categories(memory.at("peak_bytes"), trial.memory);
  trial.memory.reserved = memory.at("reserved_bytes").size();
  read_categories(memory.at("estimated_peak_bytes"), trial.estimated_memory);
  if (j.has("host_memory")) {
    const JsonPart on_host = j.at("host_memory");
    read_categories(on_host.at("peak_bytes"), trial.host_memory);
    trial.host_memory.reserved = on_host.at("reserved_bytes").size();
  }
  if (!j.has("metrics")) return trial;
  read_metrics(j.at("metrics"), trial);
  trial.metrics->steps_ms = steps_from(j);
  trial.wire = wire_from(j.at("comm").at("wire_bytes_per_rank"));
  trial.expected_wire = wire_from(j.at("comm").at("expected_wire_bytes_per_rank"));
  metrics::CauseReport& causes = trial.causes.emplace();
  causes.step_ms = trial.metrics->step_ms.median;
  causes.stalled_ms = j.at("stalled_ms").number();
  if (j.has("caveats")) {
    for (const JsonPart& caveat : j.at("caveats").list()) trial.caveats.push_back(caveat.text());
  }
  if (!j.flag("rated", true)) return trial;
  read_causes(j, causes);
  return trial;
}

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
  if (trial.host_memory.reserved > 0) {
    j["host_memory"] = {{"peak_bytes", categories_json(trial.host_memory)},
                        {"reserved_bytes", trial.host_memory.reserved}};
  }
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
    add_causes(*trial.causes, j);
  }
  return j;
}

Trial trial_from_json(const json& j) { return trial_from_json(JsonPart(j)); }

}  // namespace fsdpbench::app
