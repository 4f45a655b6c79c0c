#include "app/experiment/measured_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/experiment/default_data.h"
#include "app/job/job_run.h"
#include "app/machine/machine_facts.h"
#include "app/machine/select_backend.h"
#include "base/bytes.h"
#include "base/error.h"
#include "config/spelling.h"
#include "config/validate.h"
#include "metrics/peers_arrived.h"
#include "metrics/run_metrics.h"
#include "schedule/policy.h"

namespace fsdpbench::app {
namespace {

void check_memory(const engine::Setup& p, int local_ranks) {
  if (p.config.device.backend == config::BackendKind::cuda) return;  // not this memory; the device's pool checks
  const bool untouched = p.config.emulate.compute_tflops && p.config.emulate.link_gb_per_s;
  if (untouched) return;  // nothing is computed or moved: the memory is never used
  const std::int64_t needed = p.memory.reserved * local_ranks;
  const std::int64_t available = available_memory_bytes();
  if (needed <= available) return;
  throw ResourceError(fmt::format(
      "{} ranks need {} of memory, {} each, and this machine has {} available. Use fewer ranks, a smaller model or "
      "batch, fsdp.activation_checkpointing = true, or emulate both computation (emulate.compute_tflops) and link "
      "(emulate.link_gb_per_s), which needs no memory; `fsdpbench explain` shows where the bytes go",
      local_ranks, format_bytes(needed), format_bytes(p.memory.reserved), format_bytes(available)));
}

/// Bytes counted on the wire equal the closed formula; a ring of an uneven message rounds each all-reduce down.
void check_wire_bytes(const RunReport& report) {
  const auto steps = static_cast<double>(report.result->traces.front().steps.size());
  const auto& plan = report.setup->plan;
  const double slack =
      static_cast<double>(4 * plan.units.size()) * static_cast<double>(report.setup->config.train.accumulate) + 1;
  const plan::CommunicationVolume& v = report.expected_volume;
  for (const backend::WireBytes& bytes : report.result->wire_bytes) {
    const std::pair<backend::Collective, double> expected[] = {{backend::Collective::all_gather, v.all_gather},
                                                               {backend::Collective::reduce_scatter, v.reduce_scatter},
                                                               {backend::Collective::all_reduce, v.all_reduce}};
    for (const auto& [kind, formula] : expected) {
      const double counted = static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / steps;
      const double allowed = kind == backend::Collective::all_reduce ? slack : 0.5;
      if (std::abs(counted - formula) > allowed) {
        throw Error(fmt::format("{} moved {} bytes a rank and step where the formula says {}; these measurements "
                                "must not be used",
                                backend::to_string(kind), counted, formula),
                    ExitCode::check_failed);
      }
    }
  }
}

void check_memory_estimate(const RunReport& report) {
  const PoolStatistics& expected = report.setup->memory;
  for (const PoolStatistics& measured : report.result->memory) {
    // A run shorter than the walk may not have reached the peak; it may never exceed it.
    if (measured.peak_occupied_total > expected.peak_occupied_total) {
      throw Error(fmt::format("the pool peaked at {} bytes where the plan estimates {}; these measurements must not "
                              "be used",
                              measured.peak_occupied_total, expected.peak_occupied_total),
                  ExitCode::check_failed);
    }
  }
}

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S%z}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

/// Runs it on threads of this process or on the processes of the job.
engine::Measurement train(backend::Backend& backend, const PreparedRun& prepared, engine::RunHooks& hooks,
                          const RunPlace& place, const RunReport& report) {
  if (place.job == nullptr) return engine::run(backend, prepared.setup, *prepared.data, hooks);
  Job& job = *place.job;
  const nlohmann::json frame = place.folder.empty() ? nlohmann::json() : result_frame(report);
  job.watch().doing("preparing a run");
  JobRun::announce(job, prepared, place.folder, frame);
  JobRun run(job, prepared, place.folder, frame);
  hooks.done = &run.done();
  job.watch().doing("training");
  engine::Measurement result = engine::run(backend, prepared.setup, *prepared.data, hooks, &job.session());
  run.ended();
  job.watch().doing("computing metrics and writing results");
  return result;
}

double tokens_per_step(const config::RunConfig& c) {
  const std::int64_t sample = c.model.kind == config::ModelKind::decoder ? c.train.seq_len : 1;
  return static_cast<double>(c.mesh.ranks * c.train.batch_per_rank * c.train.accumulate * sample);
}

}  // namespace

PreparedRun prepare_run(config::RunConfig config, int local_ranks) {
  PreparedRun run;
  run.notes = config::validate(config);
  run.setup = engine::set_up(config);
  check_memory(run.setup, local_ranks > 0 ? local_ranks : run.setup.plan.mesh.ranks());
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  run.data = std::make_unique<engine::ByteDataset>(
      config.data.path.empty() ? default_data_path() : std::filesystem::path(config.data.path),
      decoder ? config.train.seq_len + 1 : config.model.in_features + config.model.out_features);
  return run;
}

std::optional<LinkModel> link_facts(const config::RunConfig& config) {
  if (!config.emulate.link_gb_per_s) return std::nullopt;
  return LinkModel{*config.emulate.link_gb_per_s * 1e9, config.emulate.link_latency_us * 1e-6};
}

MeasuredRun measure(const PreparedRun& prepared, engine::RunHooks hooks, const RunPlace& place) {
  const engine::Setup& p = prepared.setup;
  MeasuredRun run;
  run.report.setup = &p;
  run.report.date = date_now();
  run.report.command_line = place.command_line;
  run.report.session = place.job == nullptr ? nullptr : &place.job->session();
  const auto backend = select_backend(std::string(config::to_string(p.config.device.backend)));
  run.result = std::make_unique<engine::Measurement>(train(*backend, prepared, hooks, place, run.report));
  run.report.result = run.result.get();
  run.report.expected_volume =
      plan::communication_volume(p.plan, p.config, schedule::units_that_reshard(p.policy, p.plan));
  if (run.result->traces.front().steps.empty()) return run;
  metrics::fill_peers_arrived(p.schedules, p.plan.groups, run.result->traces);
  run.report.metrics = metrics::run_metrics(p.schedules, p.plan.groups, run.result->traces, tokens_per_step(p.config));
  check_wire_bytes(run.report);
  check_memory_estimate(run.report);
  run.report.causes = metrics::report_causes(p.schedules, p.plan, p.policy, run.result->traces, link_facts(p.config));
  return run;
}

}  // namespace fsdpbench::app
