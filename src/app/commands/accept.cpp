#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/acceptance/acceptance_files.h"
#include "app/acceptance/judge_facts.h"
#include "app/commands/command.h"
#include "app/commands/measure.h"
#include "app/console/console.h"
#include "app/console/json_part.h"
#include "app/console/progress.h"
#include "app/experiment/result_schema.h"
#include "app/job/config_message.h"
#include "app/job/job_run.h"
#include "app/report/result_folder.h"
#include "app/report/trace_files.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/acceptance.h"
#include "config/find_file.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench accept`.
struct AcceptArguments {
  std::string profile;                 ///< a file, or a name in profiles/acceptance
  std::vector<std::string> overrides;  ///< `key=value` of the run that the profile names
  std::string out;                     ///< folder; empty: runs/accept-<profile>-<date-time>
  bool overwrite = false;
  bool full = false;   ///< more iterations, so that tails can be rated, and a soak
  std::string budget;  ///< of time, as duration_s() reads it; empty: 5 minutes, full 30
};

constexpr const char* kAcceptanceService = "accept";  // the command's name
constexpr const char* kMeasuring = "measuring for an acceptance";
constexpr const char* kStageOfParts = "arms";
constexpr const char* kStageOfMachine = "machine";
constexpr const char* kStageOfStandstills = "standstills";
constexpr const char* kParts = "computation alone, communication alone and both";
constexpr int kFewestSteps = 5;

AcceptanceEffort effort_of(const config::Acceptance& wanted, bool full) {
  AcceptanceEffort effort;
  effort.matrix = wanted.matrix;
  effort.memory_bytes = wanted.memory_mib << 20;
  if (full) effort.iterations = 200;
  if (full) effort.arm_rounds = 30;
  return effort;
}

/// A rank that differs, or too few of them: what would be measured is of another machine than the one that is asked
/// for.
std::string why_stop(const config::Acceptance& wanted, const AcceptanceMeasurements& measured) {
  for (const accept::Judgement& j : judge_facts(wanted, measured)) {
    if (j.verdict == accept::Verdict::fail) return j.sentence;
  }
  return {};
}

/// For how long each rank's process did not run at all. On rank 0, by rank. Collective.
std::vector<double> standstills(Job& job) {
  std::vector<double> seconds;
  const std::string mine = fmt::format("{:.3f}", job.watch().longest_standstill_s());
  for (const std::string& text : launch::gather(job.session().control(), "standstill", mine)) {
    seconds.push_back(std::strtod(text.c_str(), nullptr));
  }
  return seconds;
}

/// One acceptance, stage by stage, on rank 0; the others of a job take part.
class Acceptance {
 public:
  Acceptance(const config::Acceptance& wanted, const Cell& cell, const AcceptArguments& arguments, Job* job)
      : wanted_(wanted),
        cell_(cell),
        effort_(effort_of(wanted, arguments.full)),
        full_(arguments.full),
        job_(job),
        clock_(
            arguments.budget.empty() ? (full_ ? 1800 : 300) : duration_s(arguments.budget),
            [] { return static_cast<double>(now_ns()) * 1e-9; },
            [](const std::string& stage) { console().info(stage); }) {}

  void measure() {
    measure_machine();
    if (measured_.stopped_because.empty()) {
      measure_steps();
      if (cell_.setup.config.mesh.ranks > 1) measure_parts();
      if (full_ && cell_.setup.config.mesh.ranks > 1) soak();
    }
    if (job_ != nullptr) {
      order_service(*job_, kAcceptanceService, {{"stage", kStageOfStandstills}});
      measured_.standstill_s = standstills(*job_);
    }
    clock_.end();
    measured_.stages = clock_.stages();
  }
  const AcceptanceMeasurements& measured() const { return measured_; }
  /// Of the run; null: its steps were not measured.
  const Trial* trial() const { return trial_ ? &*trial_ : nullptr; }

 private:
  launch::Session* session() const { return job_ == nullptr ? nullptr : &job_->session(); }
  void order(nlohmann::json what) {
    if (job_ == nullptr) return;
    what["config"] = to_message(cell_.setup.config);
    order_service(*job_, kAcceptanceService, what);
    job_->watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  }

  void measure_machine() {
    order({{"stage", kStageOfMachine},
           {"matrix", effort_.matrix},
           {"memory_bytes", effort_.memory_bytes},
           {"device_rounds", effort_.device_rounds},
           {"iterations", effort_.iterations},
           {"pair_bytes", effort_.pair_bytes}});
    const AcceptanceLead lead{clock_, [this](const AcceptanceMeasurements& m) { return why_stop(wanted_, m); }};
    measured_ = measure_acceptance(cell_.setup, effort_, session(), &lead);
  }

  /// About, from what collectives and products took.
  double step_s() const {
    double seconds = 0;
    for (const plan::Unit& unit : cell_.setup.plan.units) {
      double fastest = 0;  // bytes a second
      for (const CollectiveRow& row : measured_.ladder) {
        if (row.in_place) fastest = std::max(fastest, row.in_place->algorithm_gb_per_s(row.message) * 1e9);
      }
      const auto bytes = static_cast<double>(unit.layout.gathered_numel() * size_of(cell_.setup.plan.param_dtype));
      if (fastest > 0) seconds += 3 * bytes / fastest;
    }
    double flops = 0;
    for (const plan::ModuleSizes& module : cell_.setup.sizes) {
      flops += module.forward_flops + module.recompute_flops + module.backward_flops;
    }
    std::vector<double> rates;
    for (const std::vector<double>& round : measured_.device_rates)
      rates.insert(rates.end(), round.begin(), round.end());
    const double rate = rates.empty() ? 0 : metrics::median(std::move(rates));
    return seconds + (rate > 0 ? flops / rate : 0);
  }

  bool wrong_data() const {
    const auto wrong = [](const std::optional<Timing>& timing) { return timing && timing->wrong.value_or(0) > 0; };
    return std::ranges::any_of(
        measured_.ladder, [&](const CollectiveRow& row) { return wrong(row.out_of_place) || wrong(row.in_place); });
  }

  void measure_steps() {
    const std::string name = fmt::format("training steps of {}", wanted_.run);
    if (wrong_data()) return clock_.skip(name, "a collective gave a wrong result");
    config::RunConfig config = cell_.setup.config;
    const double each_s = step_s();
    const int steps = clock_.fitting(static_cast<int>(config.train.steps), kFewestSteps, each_s, 0.4);
    if (steps == 0) return clock_.skip(name, clock_.spent());
    config.train.steps = steps;
    clock_.begin(name, each_s * static_cast<double>(steps + config.train.warmup));
    // Estimates of steps that nobody has seen may be far too small.
    trial_ = whole_trial(config, job_, {}, [this] { return clock_.left_s() <= 0; });
    if (!trial_->metrics) {
      trial_.reset();
      return clock_.skip(name, clock_.spent());
    }
    measured_.arrivals = accept::arrivals_of({cell_.setup.schedules, trial_->measurement.traces});
  }

  double round_s() const { return trial_->metrics->step_ms.median * 1e-3 * kStepsOfARound; }

  void measure_parts() {
    if (!trial_) return clock_.skip(kParts, "the training steps were not measured");
    const int rounds = clock_.fitting(effort_.arm_rounds, kFewestArmRounds, round_s(), 0.5);
    if (rounds == 0) return clock_.skip(kParts, clock_.spent());
    clock_.begin(kParts, round_s() * rounds);
    const engine::Setup arms = set_up_arms(cell_.setup.config, rounds);
    const engine::Measurement brought = run_parts(arms, rounds);
    if (!has_a_round(brought)) return clock_.skip(kParts, clock_.spent());
    const metrics::RunView run(arms.schedules, brought.traces);
    measured_.arms = arm_rounds(run);
    if (brought.interrupted) {
      clock_.note(fmt::format("{} of {} rounds: {}", measured_.arms.size(), rounds, clock_.spent()));
    }
    for (accept::Arrivals& step : accept::arrivals_of(run)) measured_.arrivals.push_back(std::move(step));
    std::vector<CollectiveRow> alone = measured_.ladder;
    alone.insert(alone.end(), measured_.scales.rows.begin(), measured_.scales.rows.end());
    measured_.predicted = predict_step(arms, run, alone);
  }

  /// Ends when the budget is spent: rounds may take longer than was thought, on a machine that gets busy.
  engine::Measurement run_parts(const engine::Setup& arms, int rounds) {
    order({{"stage", kStageOfParts}, {"rounds", rounds}});
    return run_arms(arms, *cell_.data, session(), [this] { return clock_.left_s() <= 0; });
  }

  static bool has_a_round(const engine::Measurement& brought) {
    return brought.traces.front().steps.size() >= kStepsOfARound;
  }

  /// The parts of a step again and again, for what is left of the budget.
  void soak() {
    const char* const name = "soak";
    if (!trial_) return clock_.skip(name, "the training steps were not measured");
    const engine::Setup arms = set_up_arms(cell_.setup.config, effort_.arm_rounds);
    if (clock_.left_s() < round_s() * effort_.arm_rounds) return clock_.skip(name, clock_.spent());
    clock_.begin(name, clock_.left_s());
    for (double longest_s = 0; clock_.left_s() > longest_s;) {
      const double began_s = clock_.spent_s();
      const engine::Measurement brought = run_parts(arms, effort_.arm_rounds);
      if (!has_a_round(brought)) break;
      const std::vector<accept::ArmRound> rounds = arm_rounds({arms.schedules, brought.traces});
      measured_.soak.insert(measured_.soak.end(), rounds.begin(), rounds.end());
      longest_s = std::max(longest_s, clock_.spent_s() - began_s);
      console().progress(
          fmt::format("soak: {} rounds, {} left", measured_.soak.size(), format_duration(clock_.left_s())));
    }
    console().clear_progress();
  }

  const config::Acceptance& wanted_;
  const Cell& cell_;
  const AcceptanceEffort effort_;
  const bool full_;
  Job* const job_;
  StageClock clock_;
  AcceptanceMeasurements measured_;
  std::optional<Trial> trial_;
};

/// Measures, judges, writes result.json, junit.xml, summary.md, metrics.prom and worst_step.json. `job`: null, or the
/// job whose rank 0 this is. Returns the process exit code; throws base/error.h errors.
int accept_machine(const AcceptArguments& arguments, const Call& call) {
  Job* const job = call.job;
  const std::string path = config::find_acceptance(arguments.profile);
  const config::Acceptance wanted = config::read_acceptance(path);
  const config::RunConfig config =
      load_config(config::find_profile(wanted.run), arguments.overrides, placement_of(job));
  if (config.device.backend == config::BackendKind::virtual_) {
    throw ConfigError("accept measures a machine; device.backend = \"virtual\" is none. Use \"cpu\" or \"cuda\".");
  }
  if (config.mesh.tensor > 1) {
    throw ConfigError(fmt::format(
        "accept finds who is to blame among ranks that shard; mesh.tensor = {} splits layers, too. Expected 1.",
        config.mesh.tensor));
  }
  const Cell cell = open_cell(config, local_ranks(job));
  Acceptance acceptance(wanted, cell, arguments, job);
  const ResultFolder folder("accept-" + config::profile_name(path), arguments.out,
                            arguments.overwrite ? OldResult::overwrite : OldResult::refuse);
  acceptance.measure();
  if (job != nullptr) job->watch().doing("judging and writing results");

  const AcceptanceMeasurements& measured = acceptance.measured();
  const Trial* const trial = acceptance.trial();
  const AcceptanceReport report = judge_acceptance(wanted, measured, trial);
  console().print(acceptance_table(report));
  World world = trial != nullptr ? trial->world : current_world(config, job == nullptr ? nullptr : &job->session(), {});
  world.command_line = call.command_line;
  write_file(folder.path() / "result.json", result_text(acceptance_json(report, measured, world)));
  write_file(folder.path() / "junit.xml", acceptance_junit(report));
  write_file(folder.path() / "summary.md", acceptance_markdown(report));
  write_file(folder.path() / "metrics.prom", acceptance_metrics(report));
  if (trial != nullptr) write_worst_step(folder.path() / "worst_step.json", cell.setup, *trial);
  console().info(fmt::format("written to {}", folder.path().string()));
  return report.exit_code();
}

/// The part of every other rank of a job.
void serve_acceptance(Job& job, const JsonPart& order) {
  constexpr std::int64_t kMost = 1'000'000'000;
  if (order.at("stage").text() == kStageOfStandstills) {
    standstills(job);
    return;
  }
  const Cell cell = open_cell(config_from_message(order.at("config").text()), job.session().placement().local_ranks);
  job.watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  if (order.at("stage").text() == kStageOfParts) {
    const auto rounds = static_cast<int>(order.at("rounds").whole(1, kMost));
    run_arms(set_up_arms(cell.setup.config, rounds), *cell.data, &job.session());
    return;
  }
  AcceptanceEffort effort;
  effort.matrix = static_cast<int>(order.at("matrix").whole(1, 1 << 16));
  effort.memory_bytes = order.at("memory_bytes").whole(4, std::int64_t{1} << 40);
  effort.device_rounds = static_cast<int>(order.at("device_rounds").whole(1, kMost));
  effort.iterations = static_cast<int>(order.at("iterations").whole(1, kMost));
  effort.pair_bytes = order.at("pair_bytes").whole(4, kMost);
  measure_acceptance(cell.setup, effort, &job.session(), nullptr);
}

constexpr const char* kAcceptHelp =
    R"(Under mpirun, torchrun or srun each process is a rank; otherwise ranks are threads. It measures, in this order:
  inventory    each rank's program, processor, kernel, libraries and GPU: names whoever differs from the majority
  rendezvous   whether as many ranks came as the profile expects
  devices      matrix products on all ranks at once, in 15 rounds: finds a slow rank
  GPUs         clocks, throttling, errors and PCIe lanes meanwhile
  pairs        both directions, everybody with everybody up to 64 ends: finds a slow NIC, link or switch
  collectives  all-gather and reduce-scatter of the sizes of the run's units, every element checked
  scales       the same in groups of 2, 4, … all ranks, and shard groups beside replicate groups
  steps        the run that the profile names: how much communication is exposed, who is late
  parts        a step's computation alone, its communication alone, and both, in turns
  soak         with --full: the parts again and again for the rest of the budget: finds who grows slower
Each rule has a verdict with figure, interval and reason: pass, fail, inconclusive, or unrated (there is no reference to
compare with). Figures that were not measured never pass. The folder gets result.json, junit.xml, summary.md,
metrics.prom (Prometheus' textfile collector) and worst_step.json (timeline of the slowest step). `fsdpbench report DIR`
draws them.

Examples
  fsdpbench accept cpu --set mesh.ranks=6
  fsdpbench accept cpu --set mesh.ranks=4 --full --budget 10m
  srun -n 8 fsdpbench accept hgx-h100

Exit codes: 0 pass, 9 a collective gave a wrong result, 10 fail, 11 inconclusive or unrated; others: fsdpbench help
exit-codes.
)";

}  // namespace

Command accept_command() {
  const auto accept_it = std::make_shared<AcceptArguments>();
  Command command(kAcceptanceService, CommandGroup::operate, "Say whether a machine is fit, and which part is to blame",
                  kAcceptHelp);
  command.argument("PROFILE", &accept_it->profile, "A TOML file, or a name in profiles/acceptance");
  command.set("-s,--set", accept_it->overrides, "Set one key of the run that the profile names; may be repeated");
  command.flag("--full", accept_it->full, "200 iterations of each collective, so that tails are rated, and a soak");
  command.option("--budget", &accept_it->budget, "TIME",
                 "How long it may take, as in 90s or 5m; default: 5m, with --full 30m");
  command.out(accept_it->out, accept_it->overwrite, "Folder; default: runs/accept-<profile>-<date-time>");
  command.runs_ranks = true;
  command.body = [accept_it](const Call& call) { return accept_machine(*accept_it, call); };
  command.serve = serve_acceptance;
  return command;
}

}  // namespace fsdpbench::app
