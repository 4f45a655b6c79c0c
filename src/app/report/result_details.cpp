#include "app/report/result_details.h"

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "app/experiment/measured_run.h"
#include "metrics/run_details.h"
#include "metrics/step_view.h"
#include "schedule/memory_walk.h"
#include "schedule/policy.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

json phases_json(const metrics::RunDetails& details) {
  json j;
  for (const metrics::PhaseTimes& p : details.phases) {
    j[std::string(schedule::to_string(p.phase))] = {
        {"step_ms", p.step_ms},       {"compute_ms", p.compute_ms},           {"comm_ms", p.comm_ms},
        {"overlap_ms", p.overlap_ms}, {"exposed_comm_ms", p.exposed_comm_ms}, {"exposed_copy_ms", p.exposed_copy_ms},
        {"idle_ms", p.idle_ms},       {"host_wait_ms", p.host_wait_ms}};
  }
  return j;
}

json collectives_json(const metrics::RunDetails& details) {
  json j = json::array();
  for (const metrics::CollectiveTimes& c : details.collectives) {
    json entry{{"name", c.name},
               {"kind", c.kind},
               {"unit", c.unit},
               {"phase", c.phase},
               {"bytes", c.message_bytes},
               {"group_size", c.group_size},
               {"count", c.count},
               {"time_ms", c.time_ms},
               {"wait_ms", c.wait_ms},
               {"transfer_ms", c.transfer_ms},
               {"algbw_gb_s", c.algbw_gb_s},
               {"busbw_gb_s", c.busbw_gb_s}};
    if (c.link_efficiency) entry["link_efficiency"] = *c.link_efficiency;
    j.push_back(std::move(entry));
  }
  return j;
}

/// Live bytes over one step of median length, on its slowest rank: an op's buffers live from its begin on the lane, or
/// until its end, not from when the host, far ahead, issued it.
json timeline_json(const RunReport& report) {
  const engine::Setup& p = *report.setup;
  const int rank = report.causes->example_rank;
  const trace::RankTrace& trace = report.result->traces[static_cast<std::size_t>(rank)];
  const std::int32_t step = report.causes->example_step;
  const schedule::Schedule& schedule = p.schedules.of_step(static_cast<std::size_t>(step));
  const auto first =
      std::find_if(trace.records.begin(), trace.records.end(), [&](const trace::Record& r) { return r.step == step; });
  metrics::StepRecords records;
  records.schedule = &schedule;
  records.ranks = {&*first};
  records.windows = {trace.steps[static_cast<std::size_t>(step - trace.records.front().step)]};
  const metrics::StepView view(records, p.schedules.event_count, 0);

  CategoryBytes live{};
  for (const schedule::Buffer& b : schedule.buffers) {
    if (b.persistent) live[index_of(b.category)] += b.bytes;
  }
  std::vector<std::tuple<std::int64_t, std::size_t, std::int64_t>> changes{{view.window().begin_ns, 0, 0}};
  const auto change = [&](std::int64_t time, schedule::BufferId id, int sign) {
    const schedule::Buffer& b = schedule.buffers[static_cast<std::size_t>(id)];
    changes.emplace_back(time, index_of(b.category), sign * b.bytes);
  };
  for (int i = 0; i < view.size(); ++i) {
    for (schedule::BufferId id : view.op(i).allocates) change(view.record(i).begin_ns, id, 1);
    for (schedule::BufferId id : view.op(i).frees) change(view.done(i), id, -1);
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& x, const auto& y) { return std::get<0>(x) < std::get<0>(y); });
  json j{{"rank", rank}, {"step", step}, {"time_ms", json::array()}};
  for (const auto& [time, category, bytes] : changes) {
    live[category] += bytes;
    j["time_ms"].push_back(static_cast<double>(time - view.window().begin_ns) / 1e6);
    for (MemoryCategory c : kMemoryCategories) j[std::string(to_string(c))].push_back(live[index_of(c)]);
  }
  return j;
}

/// Length of every measured step, by rank and of the slowest.
json steps_json(const engine::Measurement& run) {
  json j{{"slowest_rank_ms", json::array()}, {"by_rank", json::array()}};
  std::vector<double> slowest(run.traces.front().steps.size(), 0.0);
  for (const trace::RankTrace& trace : run.traces) {
    json mine = json::array();
    for (std::size_t s = 0; s < trace.steps.size(); ++s) {
      const double ms = static_cast<double>(trace.steps[s].end_ns - trace.steps[s].begin_ns) / 1e6;
      mine.push_back(ms);
      slowest[s] = std::max(slowest[s], ms);
    }
    j["by_rank"].push_back(std::move(mine));
  }
  j["slowest_rank_ms"] = slowest;
  return j;
}

json peak_json(const engine::Setup& p) {
  const schedule::Schedule& steady = p.schedules.steady();
  const schedule::MemoryPeak peak = schedule::memory_peak(steady);
  json j{{"op", peak.op < 0 ? "" : schedule::op_name(p.plan, steady.ops[static_cast<std::size_t>(peak.op)])},
         {"live_bytes", peak.live_bytes},
         {"live", json::array()}};
  for (schedule::BufferId id : peak.live) {
    const schedule::Buffer& b = steady.buffers[static_cast<std::size_t>(id)];
    json entry{{"role", schedule::to_string(b.role)}, {"category", to_string(b.category)}, {"bytes", b.bytes}};
    if (b.unit >= 0) entry["unit"] = p.plan.units[static_cast<std::size_t>(b.unit)].label();
    j["live"].push_back(std::move(entry));
  }
  return j;
}

/// Forward and backward of the model once a microbatch; recomputation is not the model's (as MFU is defined).
double model_flops_per_rank(const engine::Setup& p) {
  double flops = 0;
  for (const plan::ModuleSizes& s : p.sizes) flops += s.forward_flops + s.backward_flops;
  return flops * static_cast<double>(p.config.train.accumulate);
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

void add_details(const RunReport& report, json& result) {
  const engine::Setup& p = *report.setup;
  const metrics::RunDetails details = metrics::run_details(
      p.schedules, p.plan, report.result->traces, link_facts(p.config));

  json& m = result["metrics"];
  m["phases"] = phases_json(details);
  for (const metrics::UnitTimes& u : details.units) {
    m["units"].push_back({{"unit", u.unit},
                          {"compute_ms", u.compute_ms},
                          {"comm_ms", u.comm_ms},
                          {"exposed_comm_ms", u.exposed_comm_ms}});
  }
  const double flops = model_flops_per_rank(p);
  const double seconds = report.metrics->step_ms.median / 1000;
  m["model_flops_per_rank_and_step"] = flops;
  m["model_tflops_per_rank"] = flops / seconds / 1e12;
  // Model FLOPs utilisation needs a peak that somebody states; the emulated rate is one.
  if (p.config.emulate.compute_tflops) m["mfu_pct"] = 100 * flops / seconds / (*p.config.emulate.compute_tflops * 1e12);
  result["collectives"] = collectives_json(details);
  result["steps"] = steps_json(*report.result);
  result["memory"]["timeline"] = timeline_json(report);
  result["memory"]["peak_at"] = peak_json(p);
  result["memory"]["process_peak_rss_bytes"] = peak_rss_bytes();
}

}  // namespace fsdpbench::app
