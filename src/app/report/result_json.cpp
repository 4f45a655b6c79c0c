#include "app/report/result_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/machine/build_info.h"
#include "app/machine/machine_facts.h"
#include "app/report/result_details.h"
#include "config/spelling.h"
#include "config/write.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

/// Who started the ranks, and how they talk.
json launch_json(const RunReport& report) {
  const int ranks = report.setup->plan.mesh.ranks();
  if (report.session == nullptr) return {{"ranks", ranks}, {"source", "threads of one process"}};
  return {{"ranks", ranks}, {"source", report.session->placement().source}, {"transport", report.session->transport()}};
}

/// By rank: where it ran, and how its device measured.
json devices_json(const engine::Measurement& result) {
  json j = json::array();
  for (std::size_t rank = 0; rank < result.devices.size(); ++rank) {
    json entry{{"rank", rank}, {"host", result.hosts[rank]}};
    for (const auto& [name, fact] : result.devices[rank]) entry[name] = fact;
    j.push_back(std::move(entry));
  }
  return j;
}

/// How well the ranks' clocks are known: their times are on rank 0's. Null for threads, which share one.
json clock_json(const engine::Measurement& result) {
  if (result.clocks.empty()) return nullptr;
  json j = json::array();
  bool one = true;
  for (std::size_t rank = 0; rank < result.clocks.size(); ++rank) {
    const auto& [before, correction] = result.clocks[rank];
    one &= correction.same_clock();
    j.push_back({{"rank", rank},
                 {"offset_us", static_cast<double>(before.offset_ns) / 1e3},
                 {"residual_us", static_cast<double>(correction.residual_ns()) / 1e3},
                 {"drift_us_per_s", correction.drift() * 1e6}});
  }
  return one ? json("same host clock") : j;
}

json world(const RunReport& report) {
  const BuildInfo& build = build_info();
  const MachineFacts machine = machine_facts();
  json j{{"version", build.version},      {"git_revision", build.git_revision},
         {"git_dirty", build.git_dirty},  {"build_type", build.build_type},
         {"compiler", build.compiler},    {"command_line", report.command_line},
         {"date", report.date},           {"backend", config::to_string(report.setup->config.device.backend)},
         {"launch", launch_json(report)}, {"cpu", machine.cpu},
         {"threads", machine.threads},    {"memory_bytes", machine.memory_bytes},
         {"kernel", machine.kernel},      {"realtime", machine.realtime}};
  for (const auto& [name, version] : machine.libraries) j["libraries"][name] = version;
  const config::RunConfig& config = report.setup->config;
  j["emulated_link"] = config.emulate.link_gb_per_s.has_value();
  j["emulated_compute"] = config.emulate.compute_tflops.has_value();
  return j;
}

json summary(const metrics::Summary& s) {
  return {{"median", s.median}, {"ci_low", s.ci_low}, {"ci_high", s.ci_high},
          {"min", s.min},       {"max", s.max},       {"n", s.n}};
}

json metrics_json(const metrics::RunMetrics& m) {
  json j{{"step_ms", summary(m.step_ms)},        {"compute_ms", m.compute_ms},           {"comm_ms", m.comm_ms},
         {"exposed_comm_ms", m.exposed_comm_ms}, {"exposed_copy_ms", m.exposed_copy_ms}, {"idle_ms", m.idle_ms},
         {"tokens_per_s", m.tokens_per_s}};
  if (m.overlap_pct) j["overlap_pct"] = *m.overlap_pct;
  if (m.bound_ratio) j["step_over_bound"] = *m.bound_ratio;
  if (m.aa_noise_pct) j["aa_noise_pct"] = *m.aa_noise_pct;
  if (m.settling) {
    j["unsettled_steps"] = m.settling->unsettled;
    j["never_settled"] = m.settling->never_settled;
  }
  for (const metrics::RankMetrics& rank : m.ranks) {
    j["ranks"].push_back({{"step_ms", summary(rank.step_ms)},
                          {"compute_ms", rank.compute_ms},
                          {"exposed_comm_ms", rank.exposed_comm_ms},
                          {"idle_ms", rank.idle_ms}});
  }
  return j;
}

json categories(const CategoryBytes& bytes, std::int64_t total) {
  json j{{"total", total}};
  for (MemoryCategory c : kMemoryCategories) j[std::string(to_string(c))] = bytes[index_of(c)];
  return j;
}

/// Peaks of the rank that needed most.
json memory_json(const RunReport& report) {
  const std::vector<PoolStatistics>& ranks = report.result->memory;
  const PoolStatistics& worst = *std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.peak_occupied_total < b.peak_occupied_total;
  });
  const PoolStatistics& expected = report.setup->memory;
  return {{"peak_bytes", categories(worst.peak_occupied, worst.peak_occupied_total)},
          {"reserved_bytes", worst.reserved},
          {"estimated_peak_bytes", categories(expected.peak_occupied, expected.peak_occupied_total)}};
}

json communication_json(const RunReport& report) {
  const auto steps = static_cast<double>(report.result->traces.front().steps.size());
  const backend::WireBytes& bytes = report.result->wire_bytes.front();
  const auto per_step = [&](backend::Collective kind) {
    return std::llround(static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / steps);
  };
  const plan::CommunicationVolume& v = report.expected_volume;
  return {{"wire_bytes_per_rank",
           {{"all_gather", per_step(backend::Collective::all_gather)},
            {"reduce_scatter", per_step(backend::Collective::reduce_scatter)},
            {"all_reduce", per_step(backend::Collective::all_reduce)}}},
          {"expected_wire_bytes_per_rank",
           {{"all_gather", std::llround(v.all_gather)},
            {"reduce_scatter", std::llround(v.reduce_scatter)},
            {"all_reduce", std::llround(v.all_reduce)}}}};
}

/// Ranked causes, and where they lie in one step of median length.
void add_causes(const metrics::CauseReport& report, const engine::Measurement& result, json& j) {
  j["stalled_ms"] = report.stalled_ms;
  j["causes_small_ms"] = report.small_ms;
  j["causes"] = json::array();
  for (const metrics::CauseShare& c : report.causes) {
    json entry{{"cause", metrics::to_string(c.cause)}, {"ms", c.ms}, {"share_pct", c.share_pct}, {"advice", c.advice}};
    if (!c.unit.empty()) entry["unit"] = c.unit;
    if (!c.op.empty()) entry["op"] = c.op;
    if (c.late_rank >= 0) entry["late_rank"] = c.late_rank;
    j["causes"].push_back(std::move(entry));
  }
  const trace::RankTrace& trace = result.traces[static_cast<std::size_t>(report.example_rank)];
  const std::int32_t first = trace.records.front().step;
  const trace::StepWindow& window = trace.steps[static_cast<std::size_t>(report.example_step - first)];
  j["exposed_intervals"] = json::array();
  for (const metrics::Stall& stall : report.example) {
    j["exposed_intervals"].push_back({{"rank", report.example_rank},
                                      {"step", report.example_step},
                                      {"begin_ms", static_cast<double>(stall.time.begin - window.begin_ns) / 1e6},
                                      {"end_ms", static_cast<double>(stall.time.end - window.begin_ns) / 1e6},
                                      {"cause", metrics::to_string(stall.cause)}});
  }
}

}  // namespace

json result_frame(const RunReport& report) {
  json j;
  j["schema_version"] = kResultSchemaVersion;
  j["config"] = config::to_json(report.setup->config);
  j["world"] = world(report);
  j["train"]["warmup"] = report.setup->config.train.warmup;
  j["train"]["parameters"] = report.setup->plan.shapes.parameter_count();
  return j;
}

json result_json(const RunReport& report) {
  json j = result_frame(report);
  j["complete"] = !report.result->interrupted;
  j["world"]["devices"] = devices_json(*report.result);
  if (json clock = clock_json(*report.result); !clock.is_null()) j["world"]["clock"] = std::move(clock);
  if (report.metrics) {
    j["metrics"] = metrics_json(*report.metrics);
    j["comm"] = communication_json(report);
  }
  if (report.causes) add_causes(*report.causes, *report.result, j);
  j["memory"] = memory_json(report);
  j["train"]["steps_done"] = report.result->steps_done;
  if (report.result->parameters_digest) {
    j["train"]["loss"] = report.result->losses;
    j["train"]["params_digest"] = *report.result->parameters_digest;
  }
  if (report.metrics && report.causes) add_details(report, j);
  return j;
}

}  // namespace fsdpbench::app
