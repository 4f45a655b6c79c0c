#include "runs/trial.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "account/caveats.h"
#include "account/divergence.h"
#include "account/gpu_steps.h"
#include "account/run_details.h"
#include "account/step_breakdown.h"
#include "account/step_view.h"
#include "backend/communicator.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/spelling.h"
#include "engine/simulate.h"
#include "hardware/other_work.h"
#include "runs/select_backend.h"
#include "runs/simulated_machine.h"
#include "schedule/memory_walk.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;

double tokens_per_step(const config::RunConfig& c) {
  const std::int64_t sample = c.model.kind == config::ModelKind::decoder ? c.train.seq_len : 1;
  return static_cast<double>(c.mesh.sample_groups() * c.train.batch_per_rank) *
         static_cast<double>(c.train.accumulate * sample);
}

/// Bytes that each rank sent per step, as counted.
std::vector<plan::CommunicationVolume> sent_a_step(const engine::Measurement& measurement) {
  const auto steps = static_cast<double>(measurement.traces.front().steps.size());
  std::vector<plan::CommunicationVolume> ranks;
  for (const backend::WireBytes& bytes : measurement.wire_bytes) {
    const auto of = [&](Collective kind) { return static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / steps; };
    ranks.push_back({of(Collective::all_gather), of(Collective::reduce_scatter), of(Collective::all_reduce),
                     of(Collective::all_to_all)});
  }
  return ranks;
}

/// Ranks that compute on this machine's cores: those on rank 0's host.
int computing_ranks(const config::RunConfig& config, const engine::Measurement& measurement) {
  if (config.emulate.compute_tflops || config.device.backend != config::BackendKind::cpu) return 0;
  return static_cast<int>(std::ranges::count(measurement.hosts, measurement.hosts.front()));
}

double ms_of_trial(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }

void add_clocks(const engine::Measurement& measurement, TrialDetails& details) {
  for (std::size_t rank = 0; rank < measurement.clocks.size(); ++rank) {
    const auto& [before, correction] = measurement.clocks[rank];
    details.one_clock &= correction.same_clock();
    details.clocks.push_back({static_cast<int>(rank), static_cast<double>(before.offset_ns) / 1e3,
                              static_cast<double>(correction.residual_ns()) / 1e3, correction.drift() * 1e6});
  }
}

void add_collectives(std::vector<account::CollectiveTimes> collectives, const Trial& trial, TrialDetails& details) {
  for (account::CollectiveTimes& c : collectives) {
    DetailedCollective one;
    if (c.op >= 0 && !trial.choices.empty()) one.done_by = trial.choices[c.op];
    one.times = std::move(c);
    details.collectives.push_back(std::move(one));
  }
}

/// Intervals of the causes in one step of median length.
std::vector<CauseInterval> cause_intervals(const Trial& trial) {
  const account::CauseReport& report = *trial.causes;
  const trace::RankTrace& trace = trial.measurement.traces[report.example_place];
  const std::int32_t first = trace.records.front().step;
  const trace::StepWindow& window = trace.steps[report.example_step - first];
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
  for (const trace::LiveBytes& level : account::memory_timeline(*step, causes.example_place)) {
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
  MemoryAtPeak at{peak.op < 0 ? "" : schedule::op_name(p.plan, steady.ops[peak.op]), peak.live_bytes, {}};
  for (const schedule::BufferId id : peak.live) {
    const schedule::Buffer& b = steady.buffers[id];
    at.live.push_back({std::string(schedule::to_string(b.role)), std::string(to_string(b.category)), b.bytes,
                       b.unit >= 0 ? p.plan.units[b.unit].label() : ""});
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

double disturbing_share(const Trial& trial) {
  const World& world = trial.world;
  const bool on_processors = world.backend == "cpu" && !(world.emulated_compute && world.emulated_link);
  return on_processors && trial.others_share >= kQuietShare ? trial.others_share : 0;
}

engine::Measurement train_on_threads(const Cell& cell, const engine::RunHooks& hooks) {
  if (cell.setup.config.device.backend == config::BackendKind::virtual_) {
    return engine::simulate(cell.setup, cell.times, hooks);
  }
  const auto backend = select_backend(std::string(config::to_string(cell.setup.config.device.backend)));
  engine::RunHooks with_start = hooks;
  with_start.resume = cell.resume.get();
  const ProcessorTime before = processor_time();
  engine::Measurement measurement = engine::run(*backend, cell.setup, *cell.data, with_start);
  measurement.others_share = taken_by_others({{measurement.hosts.front(), since(before)}}, true);
  return measurement;
}

Trial run_trial(const Cell& cell, const engine::RunHooks& hooks, World world, const Train& train) {
  const std::int64_t begin = now_ns();
  const engine::Setup& p = cell.setup;
  Trial trial;
  trial.world = std::move(world);
  trial.measurement = train(cell, hooks);
  engine::Measurement& m = trial.measurement;
  trial.interrupted = m.interrupted;
  trial.others_share = m.others_share;
  for (std::size_t rank = 0; rank < m.devices.size(); ++rank) {
    trial.world.places.push_back({m.hosts[rank], m.devices[rank]});
  }
  trial.memory = *std::ranges::max_element(m.memory, {}, &PoolStatistics::peak_occupied_total);
  trial.estimated_memory = p.memory;
  if (cell.gpu) trial.device_bytes = cell.gpu->memory_bytes;
  trial.caching_allocator = cell.caching_allocator;
  if (trial.device_bytes) {
    trial.fits =
        trial.caching_allocator ? trial.caching_allocator->failures == 0 : trial.memory.reserved <= *trial.device_bytes;
  }
  trial.host_memory = *std::ranges::max_element(m.host_memory, {}, &PoolStatistics::peak_occupied_total);
  trial.expected_wire = schedule::communication_volume(p.schedules.steady(), p.plan.groups);
  if (!m.traces.front().steps.empty()) {
    const bool simulated = p.config.device.backend == config::BackendKind::virtual_;
    if (!simulated) account::fill_peers_arrived(p.schedules, p.plan.groups, m.traces);
    const account::RunView run(p.schedules, m.traces, m.slowest_ns);
    trial.metrics = account::run_metrics(run, p.plan.groups, tokens_per_step(p.config));
    if (simulated && trial.metrics->step_ms.min <= 0) {
      throw ConfigError(
          "at these rates a step takes less than a nanosecond, so there is nothing to measure; lower "
          "emulate.compute_tflops or emulate.link_gb_per_s, or make the model larger.");
    }
    const std::vector<plan::CommunicationVolume> sent = sent_a_step(m);
    account::check_wire_bytes(trial.expected_wire, sent, p.plan, p.config);
    account::check_memory(p.memory, m.memory);
    account::check_memory(p.host_memory, m.host_memory);
    trial.wire = sent.front();
    const account::EvenRows even = simulated ? even_rows(p, cell.times) : account::EvenRows();
    const auto machine = machine_of_run(p.config);
    account::MachineFacts facts{machine.get(), {}, p.config.device.backend == config::BackendKind::cuda};
    if (trial.caching_allocator) {
      facts.peak_bytes = [&](const schedule::Training& training) -> std::optional<std::int64_t> {
        const clock::OpTimes times = machine->times(training, false).times;
        const auto needs = clock::allocator_forecast(training, times, trial.device_bytes.value_or(0));
        return needs.failures + needs.retries > 0 ? std::nullopt : std::optional(needs.peak_reserved);
      };
    }
    trial.causes = account::report_causes(run, p, *trial.metrics, even, facts);
    trial.flops = account::model_flops(p.sizes, p.config, trial.metrics->step_ms.median,
                                       cell.gpu ? std::optional(cell.gpu->peak_tflops) : std::nullopt);
    if (simulated) {
      trial.choices = cell.times.choices;
      trial.sureness = prediction_interval(cell, *trial.metrics);
      if (engine::draws(p.config.simulate)) {
        trial.spread = account::jitter_spread(trial.metrics->steps_ms, steady_step(p, cell.times).ms);
      }
    }
    if (!simulated) trial.fidelity = account::emulation_fidelity(run, p.plan.groups, p.sizes, p.config, *trial.metrics);
    trial.caveats = account::caveats(*trial.metrics, trial.fidelity, computing_ranks(p.config, m),
                                     static_cast<int>(std::thread::hardware_concurrency()));
    if (const double share = disturbing_share(trial); share > 0) {
      trial.caveats.push_back(fmt::format(
          "busy: {} during this run, so CPU-bound times are not those of a quiet machine", taken_text(share)));
    }
    trial.throttled = account::find_throttling(m.gpus, m.traces);
    const std::vector<std::string> of_clocks = account::clock_caveats(m.early_ns);
    trial.caveats.insert(trial.caveats.end(), of_clocks.begin(), of_clocks.end());
    const std::vector<std::string> of_gpus = account::gpu_caveats(m.gpus, trial.throttled);
    trial.caveats.insert(trial.caveats.begin(), of_gpus.begin(), of_gpus.end());
  }
  trial.diverged_because = account::why_diverged(m.losses, m.parameters_not_finite);
  if (!trial.diverged_because.empty()) {
    trial.caveats.insert(trial.caveats.begin(), "diverged: " + trial.diverged_because);
  }
  trial.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  return trial;
}

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
