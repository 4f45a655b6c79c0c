#include "app/report/result_json.h"

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/experiment/trial_json.h"
#include "app/report/gpu_json.h"
#include "app/report/reach.h"
#include "app/report/topology_report.h"
#include "backend/collective_fact.h"
#include "config/load.h"
#include "config/write.h"
#include "metrics/caveats.h"
#include "metrics/checkpoint_cost.h"
#include "metrics/divergence.h"
#include "metrics/memory_timeline.h"
#include "metrics/run_details.h"
#include "schedule/memory_walk.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

/// How well the ranks' clocks are known: their times are on rank 0's. Null for threads, which share one.
json clock_json(const engine::Measurement& measurement) {
  if (measurement.clocks.empty()) return nullptr;
  json j = json::array();
  bool one = true;
  for (std::size_t rank = 0; rank < measurement.clocks.size(); ++rank) {
    const auto& [before, correction] = measurement.clocks[rank];
    one &= correction.same_clock();
    j.push_back({{"rank", rank},
                 {"offset_us", static_cast<double>(before.offset_ns) / 1e3},
                 {"residual_us", static_cast<double>(correction.residual_ns()) / 1e3},
                 {"drift_us_per_s", correction.drift() * 1e6}});
  }
  return one ? json("same host clock") : j;
}

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

/// How NCCL did such collectives, where its profiler told; empty: nobody knows.
std::string told_by_profiler(const metrics::CollectiveTimes& c, const engine::Measurement& measurement) {
  if (measurement.devices.empty()) return {};
  const std::string name = backend::collective_fact(c.kind, c.message_bytes, c.group_size);
  const auto fact = std::ranges::find(measurement.devices.front(), name, &backend::Facts::value_type::first);
  return fact == measurement.devices.front().end() ? "" : fact->second;
}

json collective_times_json(const metrics::RunDetails& details, const Trial& trial) {
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
    if (c.op >= 0 && !trial.choices.empty()) entry["done_by"] = trial.choices[static_cast<std::size_t>(c.op)];
    if (std::string told = told_by_profiler(c, trial.measurement); !told.empty()) entry["done_by"] = std::move(told);
    if (c.link_efficiency) entry["link_efficiency"] = *c.link_efficiency;
    j.push_back(std::move(entry));
  }
  return j;
}

json units_json(const metrics::RunDetails& details) {
  json j = json::array();
  for (const metrics::UnitTimes& u : details.units) {
    j.push_back({{"unit", u.unit},
                 {"compute_ms", u.compute_ms},
                 {"comm_ms", u.comm_ms},
                 {"exposed_comm_ms", u.exposed_comm_ms}});
  }
  return j;
}

/// Where the causes lie in one step of median length.
json intervals_json(const Trial& trial) {
  const metrics::CauseReport& report = *trial.causes;
  const trace::RankTrace& trace = trial.measurement.traces[static_cast<std::size_t>(report.example_place)];
  const std::int32_t first = trace.records.front().step;
  const trace::StepWindow& window = trace.steps[static_cast<std::size_t>(report.example_step - first)];
  json j = json::array();
  for (const metrics::ToldStall& told : report.example) {
    const metrics::Stall& stall = told.stall;
    j.push_back({{"rank", report.example_rank},
                 {"step", report.example_step},
                 {"begin_ms", static_cast<double>(stall.time.begin - window.begin_ns) / 1e6},
                 {"end_ms", static_cast<double>(stall.time.end - window.begin_ns) / 1e6},
                 {"cause", metrics::name_of(told)}});
  }
  return j;
}

/// Of the step that the causes' intervals are of.
json timeline_json(const metrics::RunView& run, const metrics::CauseReport& causes) {
  const auto step = std::ranges::find(run.steps(), causes.example_step, &metrics::StepRecords::number);
  json j{{"rank", causes.example_rank}, {"step", causes.example_step}, {"time_ms", json::array()}};
  for (const metrics::MemoryLevel& level : metrics::memory_timeline(*step, causes.example_place)) {
    j["time_ms"].push_back(static_cast<double>(level.time_ns) / 1e6);
    for (MemoryCategory c : kMemoryCategories) j[std::string(to_string(c))].push_back(level.live[index_of(c)]);
  }
  return j;
}

/// Length of every measured step, of the slowest rank and by rank; where only some ranks were recorded, which.
json steps_json(const metrics::RunView& run, const metrics::RunMetrics& metrics, int ranks) {
  json j{{"slowest_rank_ms", metrics.steps_ms}, {"by_rank", json::array()}};
  for (int rank = 0; rank < run.ranks(); ++rank) {
    json mine = json::array();
    for (const metrics::StepRecords& step : run.steps())
      mine.push_back(static_cast<double>(step.length_ns(rank)) / 1e6);
    j["by_rank"].push_back(std::move(mine));
  }
  if (run.ranks() < ranks) {
    for (int place = 0; place < run.ranks(); ++place) j["ranks"].push_back(run.steps().front().rank_at(place));
  }
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

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

json prediction_interval_json(const PredictionInterval& p) {
  json j{{"from", p.from}};
  if (!p.step_ms) {
    j["no_interval_because"] = "op times follow from the rates that were given: no other times are as likely";
    return j;
  }
  j["reach"] = to_string(replay::least_sure(p.ops));
  j["ops"] = reach_json(p.ops);
  const auto bounds = [](const replay::Bounds& b) { return json{{"low", b.low}, {"high", b.high}}; };
  j["interval_pct"] = 95;
  j["step_ms"] = bounds(*p.step_ms);
  j["exposed_comm_ms"] = bounds(*p.exposed_ms);
  j["leaves_ranks_out"] = p.leaves_ranks_out;
  return j;
}

/// Folders, and what each cost; joined by the steps that were done.
json checkpoints_json(const std::vector<engine::SavedCheckpoint>& checkpoints,
                      const std::optional<metrics::CheckpointCost>& cost) {
  json list = json::array();
  for (const engine::SavedCheckpoint& c : checkpoints) {
    json one{{"folder", c.folder}, {"steps", c.steps}, {"bytes", c.bytes}};
    for (const metrics::SaveCost& save : cost ? cost->saves : std::vector<metrics::SaveCost>()) {
      if (save.steps != c.steps) continue;
      one.update({{"at_end", save.at_end},
                  {"stall_ms", save.stall_ms},
                  {"waited_ms", save.waited_ms},
                  {"copied_ms", save.copied_ms},
                  {"wrote_ms", save.wrote_ms},
                  {"copy_ms", save.copy_ms},
                  {"write_ms", save.write_ms},
                  {"hidden_pct", save.hidden_pct},
                  {"mb_per_s", save.mb_per_s}});
    }
    list.push_back(std::move(one));
  }
  return list;
}

/// Absent where nothing is known.
json checkpoint_cost_json(const metrics::CheckpointCost& cost) {
  json j = json::object();
  if (cost.stall_ms) j["stall_ms"] = *cost.stall_ms;
  if (cost.stall_pct) j["stall_pct"] = *cost.stall_pct;
  if (cost.beside_pct) j["steps_beside_pct"] = *cost.beside_pct;
  if (!cost.because.empty()) j["because"] = cost.because;
  return j;
}

/// Needs at least one measured step.
void add_details(const engine::Setup& p, const Trial& trial, json& j) {
  const metrics::RunView run(p.schedules, trial.measurement.traces, trial.measurement.slowest_ns);
  const metrics::RunDetails details = metrics::run_details(run, p.plan, p.config.emulate.link());
  j["metrics"]["phases"] = phases_json(details);
  j["metrics"]["units"] = units_json(details);
  j["collectives"] = collective_times_json(details, trial);
  if (metrics::why_not_rated(trial.fidelity).empty()) j["exposed_intervals"] = intervals_json(trial);
  if (trial.spread) {
    j["simulation"] = {{"p50_ms", trial.spread->p50_ms},
                       {"p95_ms", trial.spread->p95_ms},
                       {"p99_ms", trial.spread->p99_ms},
                       {"without_jitter_ms", trial.spread->without_jitter_ms},
                       {"lost_to_jitter_pct", trial.spread->lost_to_jitter_pct()}};
  }
  if (trial.sureness) j["prediction"] = prediction_interval_json(*trial.sureness);
  j["steps"] = steps_json(run, *trial.metrics, p.plan.groups.ranks());
  if (json gpus = gpus_json(trial); !gpus.empty()) j["gpus"] = std::move(gpus);
  j["memory"]["timeline"] = timeline_json(run, *trial.causes);
  j["memory"]["peak_at"] = peak_json(p);
  if (!trial.world.simulated()) j["memory"]["process_peak_rss_bytes"] = peak_rss_bytes();
}

}  // namespace

json result_frame(const engine::Setup& setup, const World& world) {
  json j;
  j["config"] = config::to_json(setup.config);
  j["config_changed"] = config::changed_to_json(setup.config, config::presets_of(setup.config));
  j["world"] = to_json(world);
  j["train"]["warmup"] = setup.config.train.warmup;
  j["train"]["parameters"] = setup.plan.shapes.parameter_count();
  return j;
}

json result_json(const engine::Setup& setup, const Trial& trial) {
  json j = result_frame(setup, trial.world);
  j.update(to_json(trial));
  j.erase("steps_ms");  // of every rank below
  j.erase("seconds");
  j["complete"] = !trial.interrupted;
  const engine::Measurement& measurement = trial.measurement;
  if (json clock = clock_json(measurement); !clock.is_null()) j["world"]["clock"] = std::move(clock);
  if (setup.config.device.backend == config::BackendKind::cuda) {
    if (json topology = topology_json(); !topology.is_null()) j["world"]["topology"] = std::move(topology);
  }
  j["train"]["steps_done"] = measurement.steps_done;
  if (measurement.began_at.steps > 0) j["train"]["began_after_step"] = measurement.began_at.steps;
  if (!measurement.checkpoints.empty()) {
    const auto cost = metrics::checkpoint_cost(measurement.traces, setup.config.checkpoint.every);
    j["checkpoints"] = checkpoints_json(measurement.checkpoints, cost);
    if (cost && cost->stall_ms) j["checkpoint_cost"] = checkpoint_cost_json(*cost);
  }
  if (!measurement.losses.empty()) j["train"]["loss"] = measurement.losses;  // null where it is not finite
  if (measurement.parameters_digest) j["train"]["params_digest"] = *measurement.parameters_digest;
  if (std::string why = metrics::why_no_digest(setup.config, measurement.parameters_not_finite); !why.empty()) {
    j["train"]["no_digest_because"] = std::move(why);
  }
  if (!trial.diverged_because.empty()) j["diverged_because"] = trial.diverged_because;
  if (trial.metrics) add_details(setup, trial, j);
  return j;
}

}  // namespace fsdpbench::app
