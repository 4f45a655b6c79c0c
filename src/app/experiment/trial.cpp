#include "app/experiment/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/machine/select_backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/spelling.h"
#include "metrics/peers_arrived.h"

namespace fsdpbench::app {
namespace {

using backend::Collective;

/// Bytes counted on the wire equal the closed formula; a ring of an uneven message rounds each all-reduce down.
void check_wire_bytes(const engine::Setup& setup, const Trial& trial) {
  const auto steps = static_cast<double>(trial.measurement.traces.front().steps.size());
  const double slack =
      static_cast<double>(4 * setup.plan.units.size()) * static_cast<double>(setup.config.train.accumulate) + 1;
  const plan::CommunicationVolume& v = trial.expected_wire;
  for (const backend::WireBytes& bytes : trial.measurement.wire_bytes) {
    const std::pair<Collective, double> expected[] = {{Collective::all_gather, v.all_gather},
                                                      {Collective::reduce_scatter, v.reduce_scatter},
                                                      {Collective::all_reduce, v.all_reduce}};
    for (const auto& [kind, formula] : expected) {
      const double counted = static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / steps;
      const double allowed = kind == Collective::all_reduce ? slack : 0.5;
      if (std::abs(counted - formula) > allowed) {
        throw Error(fmt::format("{} moved {} bytes a rank and step where the formula says {}; these measurements "
                                "must not be used",
                                backend::to_string(kind), counted, formula),
                    ExitCode::check_failed);
      }
    }
  }
}

void check_memory_estimate(const Trial& trial) {
  // A run shorter than the walk may not have reached the peak; it may never exceed it.
  if (trial.memory.peak_occupied_total <= trial.estimated_memory.peak_occupied_total) return;
  throw Error(fmt::format("the pool peaked at {} bytes where the plan estimates {}; these measurements must not "
                          "be used",
                          trial.memory.peak_occupied_total, trial.estimated_memory.peak_occupied_total),
              ExitCode::check_failed);
}

double tokens_per_step(const config::RunConfig& c) {
  const std::int64_t sample = c.model.kind == config::ModelKind::decoder ? c.train.seq_len : 1;
  return static_cast<double>(c.mesh.ranks * c.train.batch_per_rank * c.train.accumulate * sample);
}

plan::CommunicationVolume sent_a_step(const engine::Measurement& measurement) {
  const auto steps = static_cast<double>(measurement.traces.front().steps.size());
  const backend::WireBytes& bytes = measurement.wire_bytes.front();
  const auto of = [&](Collective kind) { return static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / steps; };
  return {of(Collective::all_gather), of(Collective::reduce_scatter), of(Collective::all_reduce)};
}

ModelRate model_rate(const engine::Setup& setup, double step_ms) {
  ModelRate rate;
  for (const plan::ModuleSizes& s : setup.sizes) rate.flops += s.forward_flops + s.backward_flops;
  rate.flops *= static_cast<double>(setup.config.train.accumulate);
  rate.tflops = rate.flops / (step_ms / 1000) / 1e12;
  if (const auto peak = setup.config.emulate.compute_tflops) rate.mfu_pct = 100 * rate.tflops / *peak;
  return rate;
}

}  // namespace

engine::Measurement train_on_threads(const Cell& cell, const engine::RunHooks& hooks) {
  const auto backend = select_backend(std::string(config::to_string(cell.setup.config.device.backend)));
  return engine::run(*backend, cell.setup, *cell.data, hooks);
}

Trial run_trial(const Cell& cell, const engine::RunHooks& hooks, World world, const Train& train) {
  const std::int64_t begin = now_ns();
  const engine::Setup& p = cell.setup;
  Trial trial;
  trial.world = std::move(world);
  trial.measurement = train(cell, hooks);
  engine::Measurement& m = trial.measurement;
  trial.interrupted = m.interrupted;
  for (std::size_t rank = 0; rank < m.devices.size(); ++rank) {
    trial.world.places.push_back({m.hosts[rank], m.devices[rank]});
  }
  trial.memory = *std::ranges::max_element(m.memory, {}, &PoolStatistics::peak_occupied_total);
  trial.estimated_memory = p.memory;
  trial.expected_wire = plan::communication_volume(p.plan, p.config, schedule::units_that_reshard(p.policy, p.plan));
  if (!m.traces.front().steps.empty()) {
    metrics::fill_peers_arrived(p.schedules, p.plan.groups, m.traces);
    trial.metrics = metrics::run_metrics(p.schedules, p.plan.groups, m.traces, tokens_per_step(p.config));
    check_wire_bytes(p, trial);
    check_memory_estimate(trial);
    trial.wire = sent_a_step(m);
    trial.causes = metrics::report_causes(p.schedules, p.plan, p.policy, m.traces, link_model(p.config));
    trial.rate = model_rate(p, trial.metrics->step_ms.median);
  }
  trial.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  return trial;
}

}  // namespace fsdpbench::app
