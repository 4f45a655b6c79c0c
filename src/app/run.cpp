#include "app/run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/console.h"
#include "app/default_data.h"
#include "app/interrupt.h"
#include "app/machine_facts.h"
#include "app/progress.h"
#include "app/result_folder.h"
#include "app/result_json.h"
#include "app/run_table.h"
#include "app/select_backend.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/load.h"
#include "config/validate.h"
#include "config/write.h"
#include "engine/byte_dataset.h"
#include "engine/run.h"
#include "metrics/run_metrics.h"
#include "metrics/step_breakdown.h"
#include "schedule/policy.h"
#include "schedule/print_schedule.h"
#include "trace/chrome_writer.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// Whole or not at all: written beside its place, then renamed.
void write_file(const fs::path& path, const std::string& text) {
  const fs::path part = path.string() + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw OutputError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  }
  std::error_code error;
  fs::rename(part, path, error);
  if (error) throw OutputError(fmt::format("cannot write {}: {}", path.string(), error.message()));
}

void check_memory(const engine::Preparation& p) {
  const bool untouched = p.config.emulate.compute_tflops && p.config.emulate.link_gb_per_s;
  if (untouched) return;  // nothing is computed or moved: the memory is never used
  const std::int64_t needed = p.memory.reserved * p.plan.mesh.ranks();
  const std::int64_t available = available_memory_bytes();
  if (needed <= available) return;
  throw ResourceError(fmt::format(
      "{} ranks need {} of memory, {} each, and this machine has {} available. Use fewer ranks, a smaller model or "
      "batch, fsdp.activation_checkpointing = true, or emulate both computation (emulate.compute_tflops) and link "
      "(emulate.link_gb_per_s), which needs no memory; `fsdpbench explain` shows where the bytes go",
      p.plan.mesh.ranks(), format_bytes(needed), format_bytes(p.memory.reserved), format_bytes(available)));
}

std::vector<bool> reshards(const engine::Preparation& p) {
  const schedule::Policy policy = schedule::make_policy(p.config);
  std::vector<bool> result;
  for (int u = 0; u < static_cast<int>(p.plan.units.size()); ++u) {
    result.push_back(schedule::reshards_after_forward(policy, p.plan, u));
  }
  return result;
}

/// Bytes counted on the wire equal the closed formula; a ring of an uneven message rounds each all-reduce down.
void check_wire_bytes(const RunReport& report) {
  const auto steps = static_cast<double>(report.result->traces.front().steps.size());
  const auto& plan = report.preparation->plan;
  const double slack =
      static_cast<double>(4 * plan.units.size()) * static_cast<double>(report.preparation->config.train.accumulate) + 1;
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
  const PoolStatistics& expected = report.preparation->memory;
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

trace::OpLabel label(const engine::Preparation& p, std::int32_t step, std::int32_t index) {
  const schedule::Op& op = p.schedules.of_step(static_cast<std::size_t>(step)).ops[static_cast<std::size_t>(index)];
  trace::OpLabel l;
  l.name = schedule::op_name(p.plan, op);
  const metrics::OpClass op_class = metrics::classify(op);
  l.category = op_class == metrics::OpClass::computation     ? "computation"
               : op_class == metrics::OpClass::communication ? "communication"
               : op_class == metrics::OpClass::copy          ? "copy"
                                                             : "host";
  if (op.unit >= 0) l.unit = p.plan.units[static_cast<std::size_t>(op.unit)].label();
  l.phase = schedule::to_string(op.phase);
  l.lane = op.lane;
  l.host = op.is_host();
  if (op.is_collective()) l.bytes = op.count * size_of(op.dtype);
  return l;
}

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S%z}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

double tokens_per_step(const config::RunConfig& c) {
  const std::int64_t sample = c.model.kind == config::ModelKind::decoder ? c.train.seq_len : 1;
  return static_cast<double>(c.mesh.ranks * c.train.batch_per_rank * c.train.accumulate * sample);
}

}  // namespace

int run_command(const RunArguments& arguments) {
  config::RunConfig config = config::load_profile(arguments.profile, arguments.overrides);
  for (const std::string& note : config::validate(config)) console().info(note);
  const engine::Preparation preparation = engine::prepare(config);
  check_memory(preparation);
  const fs::path folder = make_result_folder(arguments.profile, arguments.out);
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  const engine::ByteDataset data(
      config.data.path.empty() ? default_data_path() : fs::path(config.data.path),
      decoder ? config.train.seq_len + 1 : config.model.in_features + config.model.out_features);
  write_file(folder / "config.toml", config::to_toml(config));
  const auto backend = select_backend("cpu");
  console().info(run_headline(preparation));

  engine::RunResult result;
  {
    Progress progress(console(), config.train.warmup + config.train.steps, now_ns());
    engine::RunHooks hooks;
    hooks.progress = [&](std::int64_t done, std::optional<double> loss) { progress.update(done, loss, now_ns()); };
    hooks.stop = interrupt_requested;
    result = engine::run(*backend, preparation, data, hooks);
  }

  RunReport report;
  report.preparation = &preparation;
  report.result = &result;
  report.command_line = arguments.command_line;
  report.date = date_now();
  report.expected_volume = plan::communication_volume(preparation.plan, config, reshards(preparation));
  if (!result.traces.front().steps.empty()) {
    report.metrics =
        metrics::run_metrics(preparation.schedules, preparation.plan.mesh, config.fsdp.reshard_after_forward.group,
                             result.traces, tokens_per_step(config));
    check_wire_bytes(report);
    check_memory_estimate(report);
    trace::write_chrome_trace((folder / "trace.json").string(), result.traces,
                              [&](std::int32_t step, std::int32_t op) { return label(preparation, step, op); });
  }
  write_file(folder / "result.json", result_json(report).dump(2) + "\n");
  console().print(run_table(report, folder));
  if (result.interrupted) {
    console().warning(
        fmt::format("interrupted after {} of {} steps; the results above are of the steps done, and {} "
                    "says \"complete\": false",
                    result.steps_done, config.train.warmup + config.train.steps, (folder / "result.json").string()));
    return static_cast<int>(ExitCode::interrupted);
  }
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
