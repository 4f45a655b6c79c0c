#include "app/commands/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "accept/collectives/beside.h"
#include "account/run_view.h"
#include "account/statistics.h"
#include "app/commands/command.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/lane.h"
#include "clock/calibration.h"
#include "clock/contention.h"
#include "clock/measured_host.h"
#include "config/calibration.h"
#include "config/find_file.h"
#include "launch/interrupt.h"
#include "record/console.h"
#include "record/table.h"
#include "runs/build_info.h"
#include "runs/finished_run.h"
#include "runs/measure.h"
#include "runs/result_folder.h"
#include "runs/simulated_machine.h"
#include "schedule/op.h"

namespace fsdpbench::app {
namespace {

/// A run that the finished calibration predicts, to see how far it misses.
struct CalibratingRun {
  engine::Setup setup;
  account::RunMetrics metrics;
};

CalibratingRun add_run(engine::Setup setup, const std::vector<trace::RankTrace>& traces,
                       const account::RunMetrics& metrics, const std::vector<config::CalibrationSlowdown>& slowdowns,
                       clock::Calibrator& calibrator) {
  const account::RunView checked(setup.schedules, traces);
  const clock::MeasuredTimes measured(setup, traces, std::nullopt, setup.config.emulate.link_gb_per_s.has_value(),
                                      clock::measured_slowdown(slowdowns, setup.config, setup.plan.groups));
  calibrator.add(measured, clock::measured_host(setup.schedules, traces, {}, clock::CoreWaits::averaged));
  return {std::move(setup), metrics};
}

/// Name of the machine that the times are of, for people.
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
  table.header = {"kind of op", "ranks", "by", "fixed", "each", "from", "to", "ops", "half within"};
  for (const config::CalibrationLine& line : c.lines) {
    const auto amount = [&](double value) { return format_count(static_cast<std::int64_t>(value)); };
    table.rows.push_back({line.kind, line.ranks > 0 ? fmt::format("{}", line.ranks) : "", line.unit,
                          shown(line.fixed_ns, "ns") + (line.ranks > 0 ? " a hop" : ""),
                          shown(line.ns_per_amount, "ns"), amount(line.least), amount(line.most),
                          fmt::format("{}", line.samples), shown(line.spread_pct, "%")});
  }
  return format_table(table) + "each, from, to: in the unit of column \"by\"\n";
}

/// The least and the most of each pair, for people; nothing where none was measured.
std::string slowdown_table(const config::Calibration& c) {
  if (c.slowdowns.empty()) return {};
  Table table;
  table.header = {"times as long", "beside", "dtype", "cells", "least", "most"};
  for (const config::CalibrationSlowdown& slowdown : c.slowdowns) {
    const auto [least, most] = std::ranges::minmax(slowdown.cells, {}, &config::CalibrationSlowdown::Cell::times);
    table.rows.push_back({slowdown.of, slowdown.beside, std::string(to_string(slowdown.dtype)),
                          fmt::format("{}", slowdown.cells.size()), fmt::format("{:.2f}", least.times),
                          fmt::format("{:.2f}", most.times)});
  }
  return format_table(table) + '\n';
}

/// The cores that the ranks of a run computed on, and how many ranks did; none of a GPU's and of emulated ranks.
std::pair<int, int> cores_and_ranks(const World& world, const config::RunConfig& c) {
  if (c.device.backend != config::BackendKind::cpu || c.emulate.compute_tflops) return {0, 0};
  std::set<std::string> hosts;
  for (const World::RankPlace& place : world.places) hosts.insert(place.host);
  return {world.threads * static_cast<int>(std::max<std::size_t>(1, hosts.size())), static_cast<int>(c.mesh.ranks)};
}

/// Where ranks compute on shared cores, a step also takes what is in no op's time: a thread that lacks a core holds up
/// its peers, the host and whatever waits for these. The time between ops (gap_ns) takes this up, so that half of the
/// runs take longer than the calibration says and half less. Gaps stay at what was measured where that says too much.
void meet_runs(const std::vector<CalibratingRun>& runs, config::Calibration& c) {
  constexpr int kRounds = 6;  // a gap in front of an op that waits anyway lengthens nothing: the first is too short
  const double measured_ns = c.host.gap_ns;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> missing_ns;  // an op of the compute lane
    for (const CalibratingRun& run : runs) {
      const double step_ns = run.metrics.step_ms.median * 1e6, miss = miss_of(c, run.setup, run.metrics).step;
      const auto ops = std::ranges::count_if(run.setup.schedules.steady().ops, [](const schedule::Op& op) {
        return op.has_work() && op.lane == Lane::compute;
      });
      if (ops > 0) missing_ns.push_back((step_ns - step_ns / (1 + miss)) / static_cast<double>(ops));
    }
    if (missing_ns.empty()) return;
    const double more_ns = std::max(account::median(std::move(missing_ns)), measured_ns - c.host.gap_ns);
    c.host.gap_ns += more_ns;
    for (config::Calibration::Host& host : c.host_refits) host.gap_ns = std::max(0.0, host.gap_ns + more_ns);
  }
}

/// Throws ConfigError unless what was measured side by side is of the machine and the devices of a run.
void check_same_machine(const BesideFile& beside, const std::string& path, const World& run) {
  if (beside.slowdowns.empty()) return;
  const auto name = [](const World& world) {
    return fmt::format("{} ({}{}{})", world.cpu, world.backend, world.emulated_link ? ", link emulated" : "",
                       world.emulated_compute ? ", computation emulated" : "");
  };
  if (name(beside.world) == name(run)) return;
  throw ConfigError(fmt::format("{} is of {}, and a run of {}: not of one machine. A calibration is of one", path,
                                name(beside.world), name(run)));
}

/// Root mean square.
double missed_pct(const config::Calibration& c) {
  double squares = 0;
  for (const config::Calibration::Miss& miss : c.misses) squares += miss.step * miss.step;
  return 100 * std::sqrt(squares / static_cast<double>(c.misses.size()));
}

constexpr const char* kCalibrateHelp =
    R"(Fits a line through the measured times of each kind of op, by its size: computation by FLOPs, collectives by
bytes and hops (counted from the arrival of the last rank, so that waiting for others does not count), everything
else by bytes. A simulation that uses the file says how many of its ops have a size that was measured, that is between
measured ones, or that is beyond them.
With --beside, the slowdown of computation and collectives by each other is taken out of these lines, and added where
they run side by side in the simulated step.

Examples
  fsdpbench calibrate quickstart --set mesh.ranks=2 --out two-ranks.toml
  fsdpbench simulate quickstart --ranks 2 --set simulate.calibration=two-ranks.toml
  fsdpbench calibrate runs/a runs/b --out machine.toml
  fsdpbench collectives --ranks 2 -b 1M -e 64M -f 4 --beside --matrix 512,2048 -J beside.json
  fsdpbench calibrate runs/a runs/b --beside beside.json --out machine.toml
)";

}  // namespace

int calibrate_runs(const CalibrateArguments& arguments) {
  refuse_old_file(arguments.out, arguments.overwrite, "--out");
  const BesideFile beside = arguments.beside.empty() ? BesideFile{} : read_beside(arguments.beside);
  clock::Calibrator calibrator;
  std::set<std::string> machines;
  std::pair<int, int> shared_cores{0, 0};
  std::set<int> rank_counts;
  std::vector<CalibratingRun> runs;
  keep_what_is_done(console().quiet());
  for (const std::string& given : arguments.runs) {
    if (path_exists(std::filesystem::path(given) / "result.json")) {
      if (!arguments.overrides.empty()) {
        throw ConfigError(fmt::format("{} is a finished run: --set has no effect on it; leave it out", given));
      }
      FinishedRun run = read_finished_run(given);
      check_same_machine(beside, arguments.beside, run.trial.world);
      machines.insert(machine_name(run.trial.world, run.setup.config));
      shared_cores = std::max(shared_cores, cores_and_ranks(run.trial.world, run.setup.config));
      runs.push_back(add_run(std::move(run.setup), run.traces, *run.trial.metrics, beside.slowdowns, calibrator));
      continue;
    }
    const config::RunConfig config = load_config(config::find_profile(given), arguments.overrides, nullptr);
    console().info(fmt::format("measuring {}", given));
    const Trial trial = whole_trial(config, nullptr);
    check_same_machine(beside, arguments.beside, trial.world);
    machines.insert(machine_name(trial.world, config));
    shared_cores = std::max(shared_cores, cores_and_ranks(trial.world, config));
    runs.push_back(
        add_run(open_cell(config).setup, trial.measurement.traces, *trial.metrics, beside.slowdowns, calibrator));
  }
  for (const CalibratingRun& run : runs) rank_counts.insert(run.setup.plan.groups.ranks());
  if (shared_cores.first > 0 && rank_counts.size() > 1 && *rank_counts.rbegin() > shared_cores.first) {
    console().warning(
        fmt::format("these runs have {} to {} ranks on {} cores, and ops take longer the more ranks share a core: a "
                    "calibration for "
                    "each number of ranks predicts better",
                    *rank_counts.begin(), *rank_counts.rbegin(), shared_cores.first));
  }
  if (machines.size() > 1) {
    throw ConfigError(fmt::format("these runs are not of one machine: {}; and {}. A calibration is of one",
                                  *machines.begin(), *machines.rbegin()));
  }
  config::Calibration calibration = calibrator.result();
  std::tie(calibration.cores, calibration.ranks) = shared_cores;
  calibration.slowdowns = beside.slowdowns;
  if (calibration.cores > 0) meet_runs(runs, calibration);
  for (const CalibratingRun& run : runs) calibration.misses.push_back(miss_of(calibration, run.setup, run.metrics));
  calibration.machine = *machines.begin();
  calibration.revision = build_info().git_revision;
  write_file(arguments.out, config::to_toml(calibration));
  console().print(fmt::format(
      "{}\n{}{}\nhost: {:.2f} us to issue an op, {:.2f} us until an idle lane begins, {:.2f} us between its ops, "
      "{:.2f} "
      "us to wake up for an event\nthe steps that it was made of differ by {:.1f} % from what it says of them\n\n"
      "calibration  {}  (fsdpbench simulate PROFILE --set simulate.calibration={})\n",
      calibration.machine, calibration_table(calibration), slowdown_table(calibration), calibration.host.issue_ns / 1e3,
      calibration.host.launch_ns / 1e3, calibration.host.gap_ns / 1e3, calibration.host.wake_ns / 1e3,
      missed_pct(calibration), arguments.out, arguments.out));
  return static_cast<int>(ExitCode::ok);
}

Command calibrate_command() {
  const auto calibrate = std::make_shared<CalibrateArguments>();
  Command command("calibrate", CommandGroup::measure, "Store how long ops take here, for simulations", kCalibrateHelp);
  command.argument("RUN", &calibrate->runs, "Folders of finished runs, or profiles to run here");
  command.set("-s,--set", calibrate->overrides, "Set one key of the profiles");
  command.option("-o,--out", &calibrate->out, "FILE", "The calibration file").required();
  command.option("--beside", &calibrate->beside, "FILE", "What `collectives --beside -J` wrote");
  command.overwrite(calibrate->overwrite, "Replace FILE; otherwise that is refused");
  command.body = [calibrate](const Call&) { return calibrate_runs(*calibrate); };
  return command;
}

}  // namespace fsdpbench::app
