#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accept/stages/acceptance_files.h"
#include "accept/stages/check_acceptance.h"
#include "accept/stages/gpu_watch.h"
#include "accept/stages/judgement_files.h"
#include "accept/stages/lost_ranks.h"
#include "account/statistics.h"
#include "app/commands/ask_endpoint.h"
#include "app/commands/command.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/accuracy.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/spelling.h"
#include "config/write.h"
#include "launch/addresses.h"
#include "launch/interrupt.h"
#include "launch/own_ranks.h"
#include "record/console.h"
#include "record/json_part.h"
#include "runs/job.h"
#include "runs/job_run.h"
#include "runs/measure.h"
#include "runs/progress.h"
#include "runs/result_folder.h"
#include "runs/result_schema.h"
#include "runs/select_backend.h"
#include "runs/trace_files.h"

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
  std::string ras;     ///< HOST:PORT of NCCL's RAS, or "off"; empty: where NCCL puts it, of GPUs only
  std::string limit;   ///< likewise: what still runs then is ended; empty: half as much again as the budget, and 2 min

  double budget_s() const { return budget.empty() ? (full ? 1800 : 300) : duration_s(budget); }
  double limit_s() const { return limit.empty() ? std::min(1.5 * budget_s() + 120, 1e6) : duration_s(limit); }
};

constexpr const char* kAcceptanceService = "accept";  // the command's name
constexpr const char* kMeasuring = "measuring for an acceptance";
constexpr const char* kStageOfParts = "arms";
constexpr const char* kStageOfMachine = "machine";
constexpr const char* kStageOfStandstills = "standstills";
constexpr const char* kStageOfNames = "names";
constexpr const char* kParts = "computation alone, communication alone and both";
constexpr int kFewestSteps = 5;
constexpr int kLost = static_cast<int>(ExitCode::rank_failed);

AcceptanceEffort effort_of(const config::Acceptance& wanted, bool full) {
  AcceptanceEffort effort;
  effort.matrix = wanted.matrix;
  effort.memory_bytes = wanted.memory_mib << 20;
  if (full) effort.iterations = 200;
  if (full) effort.arm_rounds = 30;
  return effort;
}

/// What the profile knows of switches. Throws ConfigError if its file cannot be read.
Topology topology_of(const config::Acceptance& wanted) {
  const auto text_of = [](const char* key, const std::string& path, const char* expected) {
    if (path.empty()) return std::string();
    std::ifstream file(path);
    std::string text(std::istreambuf_iterator<char>(file), {});
    if (file && text.find_first_not_of(" \t\r\n") != text.npos) return text;
    throw ConfigError(fmt::format("{} = \"{}\" cannot be read; expected {}.", key, path, expected));
  };
  Topology topology{
      .nodes_per_switch = wanted.nodes_per_switch,
      .switches = text_of("topology", wanted.topology,
                          "a file as Slurm's topology.conf, or what `scontrol show topology` or `kubectl get nodes -o "
                          "json` prints"),
      .source = wanted.topology,
      .node = text_of("node_topology", wanted.node_topology,
                      "a file that NCCL wrote (NCCL_TOPO_DUMP_FILE), or `lstopo --of xml`"),
      .node_source = wanted.node_topology};
  check_topology(topology);
  return topology;
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

/// Where NCCL's RAS is asked about lost ranks: as --ras says, else where NCCL has it unless that is switched off;
/// absent: it is not asked. CPU ranks have no NCCL.
std::optional<Endpoint> ras_of(const std::string& given, bool on_processors) {
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (given == "off" || (given.empty() && (on_processors || variable("NCCL_RAS_ENABLE") == "0"))) return std::nullopt;
  if (!given.empty()) return read_endpoint("--ras", given, kRasPort);
  const std::string named = variable("NCCL_RAS_ADDR");
  return named.empty() ? Endpoint{"--ras", "localhost", kRasPort} : read_endpoint("NCCL_RAS_ADDR", named, kRasPort);
}

/// What each rank's host is called in lists of nodes. On rank 0, by rank. Collective.
std::vector<std::string> names_of_nodes(Job& job) {
  return launch::gather(job.session().control(), "node", launch::node_name());
}

/// One acceptance, stage by stage, on rank 0; the others of a job take part.
class Acceptance {
 public:
  Acceptance(const config::Acceptance& wanted, const Cell& cell, const AcceptArguments& arguments, Job* job)
      : wanted_(wanted),
        cell_(cell),
        topology_(topology_of(wanted)),
        effort_(effort_of(wanted, arguments.full)),
        full_(arguments.full),
        job_(job),
        clock_(
            arguments.budget_s(), [] { return static_cast<double>(now_ns()) * 1e-9; },
            [this](const std::string& stage) { say(stage); }) {}

  /// What is measured now, in the words in which it was announced. For any thread.
  std::string stage() const {
    const std::lock_guard lock(mutex_);
    return stage_;
  }

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
  void say(const std::string& stage) {
    console().info(stage);
    const std::lock_guard lock(mutex_);
    stage_ = stage;
  }

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
    const AcceptanceLead lead{clock_, topology_,
                              [this](const AcceptanceMeasurements& m) { return why_stop(wanted_, m); }};
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
    const double rate = rates.empty() ? 0 : account::median(std::move(rates));
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
    if (!clock_.admits(name, each_s * static_cast<double>(kFewestSteps + config.train.warmup))) return;
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
    measured_.others_share = std::max(measured_.others_share, trial_->others_share);
    add_watched(measured_.gpus, trial_->measurement.gpus);
    measured_.arrivals = accept::arrivals_of({cell_.setup.schedules, trial_->measurement.traces});
  }

  double round_s() const { return trial_->metrics->step_ms.median * 1e-3 * kStepsOfARound; }

  void measure_parts() {
    if (!trial_) return clock_.skip(kParts, "the training steps were not measured");
    if (!clock_.admits(kParts, round_s() * kFewestArmRounds)) return;
    const int rounds = clock_.fitting(effort_.arm_rounds, kFewestArmRounds, round_s(), 0.5);
    if (rounds == 0) return clock_.skip(kParts, clock_.spent());
    clock_.begin(kParts, round_s() * rounds);
    const engine::Setup arms = set_up_arms(cell_.setup.config, rounds);
    const engine::Measurement brought = run_parts(arms, rounds);
    if (!has_a_round(brought)) return clock_.skip(kParts, clock_.spent());
    const account::RunView run(arms.schedules, brought.traces);
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
    engine::Measurement brought = run_arms(arms, *cell_.data, session(), [this] { return clock_.left_s() <= 0; });
    add_watched(measured_.gpus, brought.gpus);
    return brought;
  }

  static bool has_a_round(const engine::Measurement& brought) {
    return brought.traces.front().steps.size() >= kStepsOfARound;
  }

  /// The parts of a step again and again, for what is left of the budget.
  void soak() {
    const char* const name = "soak";
    if (!trial_) return clock_.skip(name, "the training steps were not measured");
    const engine::Setup arms = set_up_arms(cell_.setup.config, effort_.arm_rounds);
    if (!clock_.admits(name, round_s() * effort_.arm_rounds)) return;
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
  const Topology topology_;
  AcceptanceEffort effort_;
  const bool full_;
  Job* const job_;
  StageClock clock_;
  AcceptanceMeasurements measured_;
  std::optional<Trial> trial_;
  mutable std::mutex mutex_;  // of stage_
  std::string stage_ = "before the first stage";
};

OldResult old_acceptance(const AcceptArguments& arguments) {
  return arguments.overwrite ? OldResult::overwrite : OldResult::refuse;
}

std::string acceptance_stem(const std::string& path) { return "accept-" + config::profile_name(path); }

void write_acceptance(const std::filesystem::path& folder, const AcceptanceReport& report,
                      const AcceptanceMeasurements& measured, const World& world, const nlohmann::json& settings) {
  const std::string result = result_text(acceptance_json(report, measured, world, settings));
  write_file(folder / "result.json", result);
  write_file(folder / "SHA256SUMS", fmt::format("{}  result.json\n", sha256(result)));
  write_file(folder / "junit.xml", acceptance_junit(report));
  write_file(folder / "summary.md", acceptance_markdown(report, sha256(result)));
  write_file(folder / "metrics.prom", acceptance_metrics(report));
  const NodeLists nodes = node_lists(report);
  write_file(folder / "pass_nodes.txt", host_lines(nodes.pass));
  write_file(folder / "fail_nodes.txt", host_lines(nodes.fail));
}

/// What a gate compares: sizes of the profile, and the run's configuration.
nlohmann::json settings_compared(const config::Acceptance& wanted, const config::RunConfig& config) {
  return {{"matrix", wanted.matrix}, {"memory_mib", wanted.memory_mib}, {"config", config::to_json(config)}};
}

/// Prints and writes what came of an acceptance that measured nothing, because ranks or devices are not there.
int report_lost(const std::filesystem::path& folder, const AcceptanceReport& report, const config::RunConfig& config,
                const std::vector<std::string>& command_line, ExitCode code) {
  console().print(acceptance_table(report));
  write_acceptance(folder, report, {}, current_world(config, nullptr, command_line), nlohmann::json());
  console().info(fmt::format("written to {}", folder.string()));
  return static_cast<int>(code);
}

/// Ends a job that takes longer than its limit. Where it hangs the thread that measures cannot: this one says so, and
/// the watch ends what does not end by itself.
class TimeLimit {
 public:
  /// `lost` writes what is known, before anything is ended.
  TimeLimit(Job& job, double seconds, const Acceptance& acceptance, std::function<void(const std::string&)> lost)
      : thread_([&job, seconds, &acceptance, lost = std::move(lost)](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any over;
          std::unique_lock lock(mutex);
          const auto limit = std::chrono::duration<double>(seconds);
          if (over.wait_for(lock, stop, limit, [&stop] { return stop.stop_requested(); }) || stop.stop_requested())
            return;
          const std::string why =
              fmt::format("the ranks did not come to an end within {} (--limit); the last stage was: {}",
                          format_duration(seconds), acceptance.stage());
          lost(why);
          job.channel().fail(why);
        }) {}

 private:
  std::jthread thread_;
};

bool on_processors(const config::RunConfig& config) { return config.device.backend == config::BackendKind::cpu; }

/// How many processes of one rank each this one is to start; 1: none, and that rank is a thread of this one.
int own_ranks(const config::Acceptance& wanted, const AcceptArguments& arguments, const config::RunConfig& config,
              std::optional<int> devices) {
  const bool asked = std::ranges::any_of(
      arguments.overrides, [](const std::string& text) { return config::read_override(text).name == "mesh.ranks"; });
  int ranks = static_cast<int>(config.mesh.ranks);
  if (!asked && wanted.ranks > 0) {
    ranks = wanted.ranks;
  } else if (!asked && devices && *devices > 0) {
    ranks = *devices;
  }
  return devices ? std::min(ranks, *devices) : ranks;
}

/// The lost ranks among the processes that this one started.
std::vector<LostRank> lost_of(const std::vector<launch::RankEnd>& ends, double limit_s) {
  const std::string host = launch::node_name();
  // Where all hang, one that is stopped or stuck in the kernel is why; the others wait for it.
  const bool all_killed = std::ranges::all_of(ends, &launch::RankEnd::killed);
  const auto is_culprit = [&](const launch::RankEnd& end) {
    return end.lost() && (!all_killed || end.state == 'T' || end.state == 'D');
  };
  std::vector<LostRank> lost;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (!is_culprit(ends[rank])) continue;
    lost.push_back(
        {static_cast<int>(rank), host, fmt::format("rank {} on {} {}", rank, host, launch::describe(ends[rank]))});
  }
  if (lost.empty() && all_killed) {
    lost.push_back({-1, host,
                    fmt::format("the {} ranks on {} did not come to an end within {} (--limit) and were killed",
                                ends.size(), host, format_duration(limit_s))});
  }
  return lost;
}

/// What rank 0 heard of the job when a rank was lost, if it came to write that down; nobody can be asked any more.
std::vector<std::string> told_by_rank_0(const std::filesystem::path& result) {
  std::ifstream file(result);
  const nlohmann::json written = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  const auto found = written.is_object() ? written.find("meanwhile") : written.end();
  if (!written.is_object() || found == written.end() || !found->is_array()) return {};
  std::vector<std::string> sentences;
  for (const nlohmann::json& one : *found) {
    if (one.is_string()) sentences.push_back(one.get<std::string>());
  }
  return sentences;
}

/// Without a launcher: starts the ranks itself, each a process, and sees to it that they end. Their rank 0 measures,
/// prints and writes, as in any job.
int accept_on_own_ranks(const config::Acceptance& wanted, const AcceptArguments& arguments, const Call& call,
                        const config::RunConfig& config, const std::string& stem, int ranks) {
  constexpr double kBackstop_s = 30;  // rank 0 ends the job itself at its limit, and can say more
  const std::filesystem::path folder = ResultFolder(stem, arguments.out, old_acceptance(arguments)).path();
  std::vector<std::string> words{"accept", arguments.profile};
  for (const std::string& text : arguments.overrides) words.insert(words.end(), {"--set", text});
  words.insert(words.end(), {"--budget", fmt::format("{}s", arguments.budget_s()), "--limit",
                             fmt::format("{}s", arguments.limit_s()), "--out", folder.string()});
  if (arguments.full) words.emplace_back("--full");
  if (!arguments.ras.empty()) words.insert(words.end(), {"--ras", arguments.ras});
  if (arguments.overwrite) words.emplace_back("--overwrite");
  if (console().quiet()) words.emplace_back("--quiet");
  keep_what_is_done(true);
  const double limit_s = arguments.limit_s() + kBackstop_s;
  const std::vector<launch::RankEnd> ends =
      launch::start_ranks(words, ranks, {.limit_s = limit_s}, interrupt_requested);
  if (interrupt_requested()) return static_cast<int>(ExitCode::interrupted);
  // A configuration that a rank refuses says nothing of its machine, whatever then becomes of those that wait for it.
  const int refused = static_cast<int>(ExitCode::bad_input);
  if (std::ranges::count(ends, refused, &launch::RankEnd::code) > 0) return refused;
  const std::vector<LostRank> lost = lost_of(ends, limit_s);
  if (lost.empty()) return ends.front().code;
  const std::vector<std::string> meanwhile = told_by_rank_0(folder / "result.json");
  const ResultFolder again(stem, folder.string(), OldResult::overwrite);
  return report_lost(folder, judge_lost_ranks(wanted, ranks, {}, lost, on_processors(config), meanwhile), config,
                     call.command_line, ExitCode::rank_failed);
}

/// Measures, judges, writes result.json, junit.xml, summary.md, metrics.prom, lists of nodes and worst_step.json.
/// `job`: null, or the job whose rank 0 this is. Returns the process exit code; throws base/error.h errors.
int accept_machine(const AcceptArguments& arguments, const Call& call) {
  Job* const job = call.job;
  const std::string path = config::find_acceptance(arguments.profile);
  const config::Acceptance wanted = config::read_acceptance(path);
  config::RunConfig config = load_config(config::find_profile(wanted.run), arguments.overrides, placement_of(job));
  if (config.device.backend == config::BackendKind::virtual_) {
    throw ConfigError("accept measures a machine; device.backend = \"virtual\" is none. Use \"cpu\" or \"cuda\".");
  }
  if (config.mesh.tensor > 1) {
    throw ConfigError(fmt::format(
        "accept finds who is to blame among ranks that shard; mesh.tensor = {} splits layers, too. Expected 1.",
        config.mesh.tensor));
  }
  const std::string stem = acceptance_stem(path);
  if (job == nullptr) {
    if (wanted.nodes > 1) {
      throw ConfigError(
          fmt::format("{} is about {} nodes or more: start a process per rank on them, by srun, mpirun or "
                      "torchrun.",
                      path, wanted.nodes));
    }
    const std::optional<int> devices = devices_here(std::string(config::to_string(config.device.backend)));
    if (devices == 0) {
      const int expected = wanted.ranks > 0 ? wanted.ranks : static_cast<int>(config.mesh.ranks);
      const ResultFolder folder(stem, arguments.out, old_acceptance(arguments));
      return report_lost(folder.path(), judge_no_devices(wanted, launch::node_name(), expected), config,
                         call.command_line, ExitCode::below_floor);
    }
    const int ranks = own_ranks(wanted, arguments, config, devices);
    if (ranks > 1) return accept_on_own_ranks(wanted, arguments, call, config, stem, ranks);
    config.mesh.ranks = ranks;
  }
  const Cell cell = open_cell(config, local_ranks(job));
  Acceptance acceptance(wanted, cell, arguments, job);
  const ResultFolder folder(stem, arguments.out, old_acceptance(arguments));
  std::vector<std::string> nodes{launch::node_name()};
  if (job != nullptr) {
    order_service(*job, kAcceptanceService, {{"stage", kStageOfNames}});
    nodes = names_of_nodes(*job);
  }
  const std::optional<Endpoint> ras = ras_of(arguments.ras, on_processors(config));
  constexpr double kRasOfLost_s = 4;  // the watch of the job ends this process 8 s after the loss
  std::once_flag once;
  const auto report_once = [&](int rank, const std::string& why, double patience_s) {
    std::call_once(once, [&] {
      const std::string host = rank < 0 ? "" : nodes.at(static_cast<std::size_t>(rank));
      std::vector<std::string> meanwhile;
      if (ras) {
        meanwhile = ras_of_stopped_job(*ras, patience_s);
      }
      const AcceptanceReport report = judge_lost_ranks(wanted, static_cast<int>(nodes.size()), nodes,
                                                       {{rank, host, why}}, on_processors(config), meanwhile);
      report_lost(folder.path(), report, config, call.command_line, ExitCode::rank_failed);
    });
  };
  try {
    std::optional<TimeLimit> limit;
    if (job != nullptr) {
      limit.emplace(*job, arguments.limit_s(), acceptance,
                    [&](const std::string& why) { report_once(-1, why, kRasPatience_s); });
    }
    acceptance.measure();
  } catch (const BackendError& error) {
    // What is lost shows in the data first, and in the channel a moment later.
    if (job == nullptr) {
      report_once(0, error.what(), kRasOfLost_s);
    } else if (job->watch().failure_code(1).value_or(kLost) == kLost) {  // else the user ended it, or a key is wrong
      const std::optional<launch::JobFailure> failure = job->channel().failure();
      report_once(failure ? failure->rank : -1, failure ? failure->message : error.what(), kRasOfLost_s);
    }
    throw;
  }
  if (job != nullptr) job->watch().doing("judging and writing results");

  const AcceptanceMeasurements& measured = acceptance.measured();
  const Trial* const trial = acceptance.trial();
  const AcceptanceReport report = judge_acceptance(wanted, measured, trial);
  console().print(acceptance_table(report));
  World world = trial != nullptr ? trial->world : current_world(config, job == nullptr ? nullptr : &job->session(), {});
  world.command_line = call.command_line;
  write_acceptance(folder.path(), report, measured, world, settings_compared(wanted, cell.setup.config));
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
  if (order.at("stage").text() == kStageOfNames) {
    names_of_nodes(job);
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
    R"(Under mpirun, torchrun or srun each process is a rank; otherwise it starts the profile's ranks itself, a process
each, one per GPU. It measures, in this order:
  inventory    each rank's program, processor, kernel, libraries and GPU: names whoever differs from the majority
  rendezvous   whether as many ranks came as the profile expects
  devices      matrix products on all ranks at once, in 15 rounds: finds a slow rank
  GPUs         clocks, throttling, errors and PCIe lanes meanwhile
  hosts        memory, copies to and from GPUs, and launches, all hosts at once
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
  command.option("--limit", &accept_it->limit, "TIME",
                 "When ranks that still run are ended, as a failure; default: 1.5 budgets and 2m");
  command.option("--ras", &accept_it->ras, "HOST:PORT",
                 "NCCL's RAS, asked about lost ranks; default: localhost:28028 on GPUs; off: nobody");
  command.check = [accept_it] { (void)ras_of(accept_it->ras, true); };
  command.out(accept_it->out, accept_it->overwrite, "Folder; default: runs/accept-<profile>-<date-time>");
  command.runs_ranks = true;
  command.body = [accept_it](const Call& call) { return accept_machine(*accept_it, call); };
  command.serve = serve_acceptance;
  return command;
}

}  // namespace fsdpbench::app
