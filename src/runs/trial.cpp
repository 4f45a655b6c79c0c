#include "runs/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "account/caveats.h"
#include "account/divergence.h"
#include "account/gpu_caveats.h"
#include "account/identity_checks.h"
#include "account/peers_arrived.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/spelling.h"
#include "engine/simulate.h"
#include "hardware/other_work.h"
#include "runs/select_backend.h"
#include "runs/simulated_machine.h"
#include "runs/steady_step.h"
#include "schedule/fetch_trace.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;

double tokens_per_step(const config::RunConfig& c) {
  const std::int64_t sample = c.model.kind == config::ModelKind::decoder ? c.train.seq_len : 1;
  return static_cast<double>(c.mesh.sample_groups() * c.train.batch_per_rank) *
         static_cast<double>(c.train.accumulate * sample);
}

/// What each rank sent a step, as counted.
std::vector<plan::CommunicationVolume> sent_a_step(const engine::Measurement& measurement) {
  const auto steps = static_cast<double>(measurement.traces.front().steps.size());
  std::vector<plan::CommunicationVolume> ranks;
  for (const backend::WireBytes& bytes : measurement.wire_bytes) {
    const auto of = [&](Collective kind) { return static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / steps; };
    ranks.push_back({of(Collective::all_gather), of(Collective::reduce_scatter), of(Collective::all_reduce),
                     of(Collective::all_to_all), of(Collective::send_recv)});
  }
  return ranks;
}

/// Ranks that compute on this machine's cores: those on rank 0's host.
int computing_ranks(const config::RunConfig& config, const engine::Measurement& measurement) {
  if (config.emulate.compute_tflops || config.device.backend != config::BackendKind::cpu) return 0;
  return static_cast<int>(std::ranges::count(measurement.hosts, measurement.hosts.front()));
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
  trial.expected_wire = plan::communication_volume(p.plan, p.config, schedule::regathers(p.policy, p.plan));
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
    trial.causes =
        account::report_causes(run, p, *trial.metrics, simulated ? even_rows(p, cell.times) : account::EvenRows());
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

}  // namespace fsdpbench::app
