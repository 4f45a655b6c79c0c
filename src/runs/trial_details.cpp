#include "runs/trial_details.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "account/caveats.h"
#include "account/memory_timeline.h"
#include "backend/collective_fact.h"
#include "schedule/memory_walk.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

double ms_of_trial(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

void add_clocks(const engine::Measurement& measurement, TrialDetails& details) {
  for (std::size_t rank = 0; rank < measurement.clocks.size(); ++rank) {
    const auto& [before, correction] = measurement.clocks[rank];
    details.one_clock &= correction.same_clock();
    details.clocks.push_back({static_cast<int>(rank), static_cast<double>(before.offset_ns) / 1e3,
                              static_cast<double>(correction.residual_ns()) / 1e3, correction.drift() * 1e6});
  }
}

/// How the communication library did such collectives, where its profiler told; empty: nobody knows.
std::string told_by_profiler(const account::CollectiveTimes& c, const engine::Measurement& measurement) {
  if (measurement.devices.empty()) return {};
  const std::string name = backend::collective_fact(c.kind, c.message_bytes, c.group_size);
  const auto fact = std::ranges::find(measurement.devices.front(), name, &backend::Facts::value_type::first);
  return fact == measurement.devices.front().end() ? "" : fact->second;
}

void add_collectives(std::vector<account::CollectiveTimes> collectives, const Trial& trial, TrialDetails& details) {
  for (account::CollectiveTimes& c : collectives) {
    DetailedCollective one;
    if (c.op >= 0 && !trial.choices.empty()) one.done_by = trial.choices[static_cast<std::size_t>(c.op)];
    if (std::string told = told_by_profiler(c, trial.measurement); !told.empty()) one.done_by = std::move(told);
    one.times = std::move(c);
    details.collectives.push_back(std::move(one));
  }
}

/// Where the causes lie in one step of median length.
std::vector<CauseInterval> cause_intervals(const Trial& trial) {
  const account::CauseReport& report = *trial.causes;
  const trace::RankTrace& trace = trial.measurement.traces[static_cast<std::size_t>(report.example_place)];
  const std::int32_t first = trace.records.front().step;
  const trace::StepWindow& window = trace.steps[static_cast<std::size_t>(report.example_step - first)];
  std::vector<CauseInterval> all;
  for (const account::ToldStall& told : report.example) {
    const Interval& time = told.stall.time;
    all.push_back({report.example_rank, report.example_step, ms_of_trial(time.begin - window.begin_ns),
                   ms_of_trial(time.end - window.begin_ns), std::string(account::name_of(told))});
  }
  return all;
}

/// Memory over time in the step that the causes' intervals belong to.
MemoryTimeline timeline_of(const account::RunView& run, const account::CauseReport& causes) {
  const auto step = std::ranges::find(run.steps(), causes.example_step, &account::StepRecords::number);
  MemoryTimeline timeline{causes.example_rank, causes.example_step, {}, {}};
  for (const account::MemoryLevel& level : account::memory_timeline(*step, causes.example_place)) {
    timeline.time_ms.push_back(ms_of_trial(level.time_ns));
    for (const MemoryCategory c : kMemoryCategories) timeline.live[index_of(c)].push_back(level.live[index_of(c)]);
  }
  return timeline;
}

StepsByRank steps_of_ranks(const account::RunView& run, int ranks) {
  StepsByRank steps;
  for (int place = 0; place < run.ranks(); ++place) {
    std::vector<double>& mine = steps.by_rank.emplace_back();
    for (const account::StepRecords& step : run.steps()) mine.push_back(ms_of_trial(step.length_ns(place)));
    if (run.ranks() < ranks) steps.ranks.push_back(run.steps().front().rank_at(place));
  }
  return steps;
}

MemoryAtPeak memory_at_peak(const engine::Setup& p) {
  const schedule::Schedule& steady = p.schedules.steady();
  const schedule::MemoryPeak peak = schedule::memory_peak(steady);
  MemoryAtPeak at{
      peak.op < 0 ? "" : schedule::op_name(p.plan, steady.ops[static_cast<std::size_t>(peak.op)]), peak.live_bytes, {}};
  for (const schedule::BufferId id : peak.live) {
    const schedule::Buffer& b = steady.buffers[static_cast<std::size_t>(id)];
    at.live.push_back({std::string(schedule::to_string(b.role)), std::string(to_string(b.category)), b.bytes,
                       b.unit >= 0 ? p.plan.units[static_cast<std::size_t>(b.unit)].label() : ""});
  }
  return at;
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::vector<GpuOfRank> gpus_of(const Trial& trial) {
  const engine::Measurement& m = trial.measurement;
  std::vector<GpuOfRank> all;
  for (std::size_t rank = 0; rank < m.gpus.size() && rank < m.traces.size(); ++rank) {
    if (!m.gpus[rank]) continue;
    const trace::RankTrace& trace = m.traces[rank];
    const std::int32_t first = trace.records.empty() ? 0 : trace.records.front().step;
    GpuOfRank& gpu = all.emplace_back();
    gpu.rank = static_cast<int>(rank);
    gpu.health = *m.gpus[rank];
    gpu.steps = account::gpu_steps(gpu.health, trace.steps);
    for (const GpuXid& xid : gpu.health.xids) {
      GpuOfRank::Xid& one = gpu.xids.emplace_back();
      one.code = xid.code;
      for (std::size_t i = 0; i < trace.steps.size(); ++i) {
        if (xid.time_ns < trace.steps[i].begin_ns || xid.time_ns >= trace.steps[i].end_ns) continue;
        one.step = first + static_cast<std::int32_t>(i);
      }
    }
    std::ranges::copy_if(trial.throttled, std::back_inserter(gpu.throttled),
                         [&](const account::Throttling& t) { return t.rank == gpu.rank; });
  }
  return all;
}

}  // namespace

TrialDetails trial_details(const engine::Setup& setup, const Trial& trial) {
  TrialDetails details;
  add_clocks(trial.measurement, details);
  if (!trial.metrics) return details;
  const account::RunView run(setup.schedules, trial.measurement.traces, trial.measurement.slowest_ns);
  account::RunDetails found = account::run_details(run, setup.plan, setup.config.emulate.link());
  details.phases = std::move(found.phases);
  details.units = std::move(found.units);
  add_collectives(std::move(found.collectives), trial, details);
  if (account::why_not_rated(trial.fidelity).empty()) {
    details.exposed_intervals = cause_intervals(trial);
    details.path = account::report_path(run, setup.plan);
  }
  details.steps = steps_of_ranks(run, setup.plan.groups.ranks());
  details.gpus = gpus_of(trial);
  details.timeline = timeline_of(run, *trial.causes);
  details.peak_at = memory_at_peak(setup);
  if (!trial.world.simulated()) details.process_peak_rss_bytes = peak_rss_bytes();
  return details;
}

}  // namespace fsdpbench::app
