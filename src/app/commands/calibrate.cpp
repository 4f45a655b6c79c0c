#include "app/commands/calibrate.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <set>

#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/interrupt.h"
#include "app/console/table.h"
#include "app/machine/build_info.h"
#include "app/report/finished_run.h"
#include "app/report/result_folder.h"
#include "base/error.h"
#include "base/paths.h"
#include "config/calibration.h"
#include "config/find_file.h"
#include "metrics/run_view.h"
#include "replay/calibration.h"
#include "replay/measured_host.h"

namespace fsdpbench::app {
namespace {

void add_run(const engine::Setup& setup, const std::vector<trace::RankTrace>& traces, replay::Calibrator& calibrator) {
  const metrics::RunView checked(setup.schedules, traces);
  const replay::MeasuredTimes measured({setup.schedules, setup.plan.groups, setup.sizes}, traces, std::nullopt,
                                       setup.config.emulate.link_gb_per_s.has_value());
  calibrator.add(measured, replay::measured_host(setup.schedules, traces, {}));
}

/// What the times are of, for people.
std::string machine_name(const World& world, const config::RunConfig& c) {
  if (!c.simulate.cluster.empty()) return c.simulate.cluster;
  std::string name = world.simulated() ? "a computed clock" : world.cpu;
  if (c.emulate.compute_tflops) name += fmt::format(", computation emulated at {} TFLOP/s", *c.emulate.compute_tflops);
  if (c.emulate.link_gb_per_s) {
    name +=
        fmt::format(", link emulated at {} GB/s + {} us a hop", *c.emulate.link_gb_per_s, c.emulate.link_latency_us);
  }
  return name;
}

std::string calibration_table(const config::Calibration& c) {
  Table table;
  table.header = {"kind of op", "ranks", "by", "fixed", "each", "from", "to", "samples", "half within"};
  for (const config::CalibrationLine& line : c.lines) {
    table.rows.push_back({line.kind, line.ranks > 0 ? fmt::format("{}", line.ranks) : "", line.unit,
                          fmt::format("{:.2f} us{}", line.fixed_ns / 1e3, line.ranks > 0 ? " a hop" : ""),
                          fmt::format("{:.4g} ns", line.ns_per_amount), fmt::format("{:.3g}", line.least),
                          fmt::format("{:.3g}", line.most), fmt::format("{}", line.samples),
                          fmt::format("{:.1f} %", line.spread_pct)});
  }
  return format_table(table) + "each, from, to: in what stands under by\n";
}

}  // namespace

int calibrate_command(const CalibrateArguments& arguments) {
  if (path_exists(arguments.out) && !arguments.overwrite) {
    throw OutputError(fmt::format("{} exists; --overwrite replaces it, or name another file (--out)", arguments.out));
  }
  replay::Calibrator calibrator;
  std::set<std::string> machines;
  const KeepingWhatIsDone keeping(console().quiet());
  for (const std::string& given : arguments.runs) {
    if (path_exists(std::filesystem::path(given) / "result.json")) {
      if (!arguments.overrides.empty()) {
        throw ConfigError(fmt::format("{} is a finished run: --set has no effect on it; leave it out", given));
      }
      const FinishedRun run = read_finished_run(given);
      add_run(run.setup, run.traces, calibrator);
      machines.insert(machine_name(run.trial.world, run.setup.config));
      continue;
    }
    const config::RunConfig config = load_config(config::find_profile(given), arguments.overrides, nullptr);
    console().info(fmt::format("measuring {}", given));
    const Trial trial = whole_trial(config, nullptr);
    const Cell cell = open_cell(config);
    add_run(cell.setup, trial.measurement.traces, calibrator);
    machines.insert(machine_name(trial.world, cell.setup.config));
  }
  if (machines.size() > 1) {
    throw ConfigError(fmt::format("these runs are not of one machine: {}; and {}. A calibration is of one",
                                  *machines.begin(), *machines.rbegin()));
  }
  config::Calibration calibration = calibrator.result();
  calibration.machine = *machines.begin();
  calibration.revision = build_info().git_revision;
  write_file(arguments.out, config::to_toml(calibration));
  console().print(fmt::format(
      "{}\n{}\nhost: {:.2f} us to issue an op, {:.2f} us until an idle lane begins, {:.2f} us between its ops, {:.2f} "
      "us to wake up "
      "for an event\n\n"
      "calibration  {}  (fsdpbench simulate PROFILE --set simulate.calibration={})\n",
      calibration.machine, calibration_table(calibration), calibration.host.issue_ns / 1e3,
      calibration.host.launch_ns / 1e3, calibration.host.gap_ns / 1e3, calibration.host.wake_ns / 1e3, arguments.out,
      arguments.out));
  return static_cast<int>(ExitCode::ok);
}

}  // namespace fsdpbench::app
