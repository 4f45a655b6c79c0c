#include "accept/stages/acceptance.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "accept/robust.h"
#include "accept/stages/acceptance_files.h"
#include "accept/stages/gpu_watch.h"
#include "accept/stages/judgement_files.h"
#include "accept/stages/lost_ranks.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/stages/step_arms.h"
#include "accept/step_arms.h"
#include "account/statistics.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "config/validate.h"
#include "config/write.h"
#include "hardware/other_work.h"
#include "launch/addresses.h"
#include "launch/interrupt.h"
#include "launch/own_ranks.h"
#include "record/console.h"
#include "record/json_fields.h"
#include "record/table.h"
#include "runs/job_run.h"
#include "runs/measure.h"
#include "runs/result_file.h"
#include "runs/result_folder.h"

namespace fsdpbench::app {
namespace {

constexpr const char* kMeasuring = "measuring for an acceptance";
constexpr const char* kParts = "computation alone, communication alone and both";
constexpr int kFewestSteps = 5;
constexpr double kShareOfSteps = 0.4, kShareOfParts = 0.5;  // of the time that is left

/// A rank that differs, or too few of them: what would be measured is of another machine than the one that is asked
/// for.
std::string why_stop(const config::Acceptance& wanted, const AcceptanceMeasurements& measured) {
  for (const accept::Judgement& j : judge_facts(wanted, measured)) {
    if (j.verdict == accept::Verdict::fail) return j.sentence;
  }
  return {};
}

/// By rank, on rank 0: for how long each process did not run at all, and what each host is called in lists of nodes.
std::vector<double> standstills(Job& job) {
  return read_messages<double>(
      launch::gather(job.session().control(), "standstill", message_of(job.watch().longest_standstill_s())));
}
std::vector<std::string> names_of_nodes(Job& job) {
  return launch::gather(job.session().control(), "node", launch::node_name());
}

/// Order of rank 0 to all others when a stage begins.
struct StageOrder {
  std::string stage;   ///< its name in the table
  std::string config;  ///< of the run, as to_message() has it
  AcceptanceEffort effort;
};

/// Condition for a stage.
enum class Needs : std::uint8_t {
  nothing,
  rendezvous,  ///< it was not stopped there
  peers,       ///< likewise, and there are several ranks
  full,        ///< likewise, of a full acceptance
};

Cell cell_of(Job& job, const StageOrder& order) {
  Cell cell = open_cell(config_from_message(order.config), job.session().placement().local_ranks);
  job.watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  return cell;
}

void serve_machine(Job& job, const StageOrder& order) {
  measure_acceptance(cell_of(job, order).setup, order.effort, &job.session(), nullptr);
}

void serve_parts(Job& job, const StageOrder& order) {
  const Cell cell = cell_of(job, order);
  run_arms(set_up_arms(cell.setup.config, order.effort.arm_rounds), *cell.data, &job.session());
}

bool has_a_round(const engine::Measurement& brought) { return brought.traces.front().steps.size() >= kStepsOfARound; }

/// A rate that durations are told by where the profile has no reference: of slow GPUs, and of slow processors.
struct Assumed {
  const char* figure;
  double gpus, processors;
};
constexpr Assumed kAssumed[] = {
    {"gemm", 10, 0.02},       // TFLOP/s of fp32 products
    {"memory", 500, 5},       // GB/s
    {"pair", 10, 0.5},        // likewise
    {"all_gather", 20, 0.5},  // likewise, of bus bandwidth
    {"reduce_scatter", 20, 0.5},
};

class Plan {
 public:
  Plan(const config::Acceptance& wanted, const engine::Setup& setup, int nodes, bool full)
      : wanted_(wanted),
        setup_(setup),
        effort_(effort_of(wanted, full)),
        ranks_(setup.plan.mesh.ranks()),
        cluster_{.nodes = nodes, .gpus_per_node = ranks_ / nodes, .rails = nodes > 1 ? ranks_ / nodes : 1},
        processors_(setup.config.device.backend == config::BackendKind::cpu) {}

  Table stages(bool full) {
    constexpr double kOpsEach = 3;
    const double rounds = effort_.device_rounds * kOpsEach + 1;
    const double matrix = effort_.matrix;
    const auto bytes = static_cast<double>(effort_.memory_bytes);
    add("inventory", "program, kernel, libraries and device of each rank", std::nullopt);
    add("matrix products", fmt::format("{} rounds of {} rows on all ranks", effort_.device_rounds, effort_.matrix),
        rounds * 2 * matrix * matrix * matrix / (rate("gemm") * 1e12));
    add("memory", fmt::format("{} rounds of copies of {}", effort_.device_rounds, format_bytes(effort_.memory_bytes)),
        rounds * 2 * bytes / (rate("memory") * 1e9));
    if (!processors_) add("launches", "kernels with next to no work, until their host knows their end", std::nullopt);
    const std::vector<accept::Round> pairs = accept::first_rounds(cluster_);
    add(fmt::format("pairs of {}", cluster_.one_node() ? "ranks" : "nodes"),
        fmt::format("{} measurements in {} rounds, and again where one is slow", accept::measurements(pairs),
                    pairs.size()),
        static_cast<double>(pairs.size()) * 3 * (kOpsOfAPair + 1) * static_cast<double>(effort_.pair_bytes) /
            (rate("pair") * 1e9));
    const std::vector<Message> ladder = ladder_of(setup_);
    double once_s = 0;
    for (const Message& message : ladder) once_s += seconds(message);
    const auto rate_of = [&](const Message& message) {
      return static_cast<double>(message.bytes()) / seconds(message);
    };
    const double fastest = std::ranges::max(ladder | std::views::transform(rate_of));
    const double ladder_s = 2 * (effort_.iterations + kBesideIterations) * once_s;
    add("collectives", fmt::format("{} messages, {} times, in and out of place", ladder.size(), effort_.iterations),
        ladder_s);
    const std::vector<accept::Scale> scales = accept::scales_of(cluster_);
    add("scales", fmt::format("{} sizes of groups, up to {} ranks", scales.size(), ranks_),
        ladder_s / static_cast<double>(ladder.size()) * static_cast<double>(scales.size()));
    const double step_s = about_step_s(setup_, fastest, rate("gemm") * 1e12 * (processors_ ? 1 : kHalfPrecision));
    const auto steps = static_cast<double>(setup_.config.train.steps + setup_.config.train.warmup);
    add("steps", fmt::format("{:.0f} training steps of {}", steps, wanted_.run), steps * step_s);
    add("parts", fmt::format("{} rounds of computation, communication and both", effort_.arm_rounds),
        effort_.arm_rounds * kStepsOfARound * step_s);
    if (full) add("soak", "the parts again and again", std::nullopt, "what is left");
    return {.title = "", .header = {"stage", "measures", "about"}, .rows = std::move(rows_)};
  }

  Table floors() const {
    Table table{.title = "", .header = {"figure", "at least", "source"}, .rows = {}};
    const double share = wanted_.tolerance_pct / 100;
    for (const config::AcceptanceReference& r : wanted_.references) {
      const bool collective = r.figure == "all_gather" || r.figure == "reduce_scatter", time = r.figure == "launch";
      const char* const unit = time ? "us" : r.figure == "gemm" ? "TFLOP/s" : "GB/s";
      if (!collective) {
        table.rows.push_back(
            {r.figure,
             fmt::format("{}{:.4g} {}", time ? "at most " : "", time ? r.value / share : share * r.value, unit),
             r.source});
        continue;
      }
      for (const Message& m : ladder_of(setup_)) {
        if (to_string(m.op) != r.figure) continue;
        table.rows.push_back({ladder_figure(m, false),
                              fmt::format("{:.4g} {}", share * r.at(static_cast<double>(m.bytes()), m.ranks), unit),
                              r.source});
      }
    }
    return table;
  }

  bool assumed() const { return assumed_; }

 private:
  static constexpr double kHalfPrecision = 10;  // bf16 over the fp32 products that are measured

  double rate(const char* figure) {
    if (const config::AcceptanceReference* const known = wanted_.find(figure)) return known->value;
    if (std::string_view(figure) == "pair" && processors_ && setup_.config.emulate.link_gb_per_s) {
      return *setup_.config.emulate.link_gb_per_s;
    }
    star_ = assumed_ = true;
    const auto* const a =
        std::ranges::find_if(kAssumed, [&](const Assumed& one) { return std::string_view(one.figure) == figure; });
    return processors_ ? a->processors : a->gpus;
  }

  double seconds(const Message& message) {
    const std::string figure(to_string(message.op));
    const auto bytes = static_cast<double>(message.bytes());
    const config::AcceptanceReference* const known = wanted_.find(figure);
    const double gb_per_s = known != nullptr ? known->at(bytes, ranks_) : rate(figure.c_str());
    return bytes * message.bus_factor() / (gb_per_s * 1e9);
  }

  void add(std::string stage, std::string what, std::optional<double> about_s, const std::string& otherwise = "–") {
    rows_.push_back(
        {std::move(stage), std::move(what), about_s ? format_duration(*about_s) + (star_ ? " *" : "") : otherwise});
    star_ = false;
  }

  const config::Acceptance& wanted_;
  const engine::Setup& setup_;
  const AcceptanceEffort effort_;
  const int ranks_;
  const accept::Cluster cluster_;
  const bool processors_;
  std::vector<std::vector<std::string>> rows_;
  bool star_ = false, assumed_ = false;
};

}  // namespace

// clang-format off
template <>
Fields<StageOrder> declared() {
  using O = StageOrder;
  return {"StageOrder", "Order that rank 0 sends all others when a stage begins.", "accept/stages/acceptance.cpp", {
    {"stage", &O::stage, "", "its name"},
    {"config", &O::config, "", "of the run"},
    {"effort", &O::effort, "", "how much is measured"},
  }};
}
// clang-format on

namespace {

/// One acceptance, stage by stage, on rank 0; the others of a job serve it.
class Acceptance {
 public:
  Acceptance(const config::Acceptance& wanted, const Cell& cell, const Patience& patience, Job* job)
      : wanted_(wanted),
        cell_(cell),
        effort_(effort_of(wanted, patience.full)),
        full_(patience.full),
        job_(job),
        clock_(patience.budget_s, patience.now_s, [this](const std::string& stage) { say(stage); }),
        nodes_(job == nullptr ? std::vector{launch::node_name()} : std::vector<std::string>(job->ranks())) {}

  std::string stage() const {
    const std::lock_guard lock(mutex_);
    return stage_;
  }

  std::vector<std::string> nodes() const {
    const std::lock_guard lock(mutex_);
    return nodes_;
  }

  void say(const std::string& stage) {
    console().info(stage);
    const std::lock_guard lock(mutex_);
    stage_ = stage;
  }

  void measure(double limit_s, const LostWork& lost, const std::function<void(const Measured&)>& keep) {
    std::once_flag once;
    const auto lost_once = [&](int rank, const std::string& why, bool hangs) {
      std::call_once(once, lost, nodes(), rank, why, hangs);
    };
    try {
      // Where the job hangs the thread that measures cannot end it: this one says so, and the watch ends what does not.
      std::jthread limit;
      if (job_ != nullptr)
        limit = std::jthread([&](const std::stop_token& stop) { end_after(limit_s, stop, lost_once); });
      measure();
    } catch (const Interrupted&) {
      keep_measured(keep);
      throw;
    } catch (const BackendError& error) {
      // A lost rank shows in the data first, and in the channel a moment later.
      constexpr int kLost = static_cast<int>(ExitCode::rank_failed);
      const int code = job_ == nullptr ? kLost : job_->watch().failure_code(1).value_or(kLost);
      if (code == static_cast<int>(ExitCode::interrupted)) keep_measured(keep);
      if (code == kLost) {  // else a key is wrong
        launch::JobFailure failure{.message = error.what()};
        if (job_ == nullptr) {
          failure.rank = 0;
        } else if (const std::optional<launch::JobFailure> told = job_->channel().failure()) {
          failure = *told;
        }
        lost_once(failure.rank, failure.message, false);
      }
      throw;
    }
  }

  Measured take() && { return {std::move(measured_), std::move(trial_)}; }

 private:
  /// A stage.
  struct Row {
    const char* name;
    void (Acceptance::*lead)();                        ///< of rank 0
    void (*serve)(Job& job, const StageOrder& order);  ///< of the others; null: it orders nothing, or a training
    Needs needs;
  };
  friend void fsdpbench::app::serve_acceptance(Job& job, const JsonPart& order);
  static std::span<const Row> rows();

  /// Measurements from before the user ended it. How busy hosts were is known of rank 0's process alone, to which other
  /// ranks are other work: so nothing that fails by its time is certain.
  void keep_measured(const std::function<void(const Measured&)>& keep) {
    if (measured_.hosts.empty()) return;
    clock_.skip("what was to follow", "it was ended by its user (Ctrl-C, SIGTERM or SIGHUP)");
    measured_.stages = clock_.stages();
    const ProcessorTime used = since(began_);
    measured_.others_share = taken_by_others({{measured_.hosts.front(), used}}, job_ == nullptr);
    keep({measured_, trial_});
  }

  launch::Session* session() const { return job_ == nullptr ? nullptr : &job_->session(); }

  void end_after(double limit_s, const std::stop_token& stop,
                 const std::function<void(int, const std::string&, bool)>& lost) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, std::chrono::duration<double>(limit_s), [] { return false; });
    if (stop.stop_requested()) return;
    const std::string why = fmt::format("the ranks did not come to an end within {} (--limit); the last stage was: {}",
                                        format_duration(limit_s), stage());
    lost(launch::JobFailure{}.rank, why, true);
    job_->channel().fail(why);
  }

  void measure() {
    for (const Row& row : rows()) {
      const bool peers = cell_.setup.config.mesh.ranks > 1;
      const bool wanted = row.needs == Needs::nothing ||
                          (measured_.stopped_because.empty() &&
                           (row.needs == Needs::rendezvous || (peers && (row.needs == Needs::peers || full_))));
      row_ = row.name;
      if (wanted) (this->*row.lead)();
    }
    clock_.end();
    measured_.stages = clock_.stages();
  }

  /// All others of the job begin their part of the stage under way.
  void order(const AcceptanceEffort& effort) {
    if (job_ == nullptr) return;
    order_service(*job_, kAcceptanceService,
                  fields<StageOrder>().write({row_, to_message(cell_.setup.config), effort}));
    job_->watch().doing(kMeasuring, JobWatch::Work::may_be_cut);
  }

  void ask_names() {
    if (job_ == nullptr) return;
    order(effort_);
    std::vector<std::string> names = names_of_nodes(*job_);
    const std::lock_guard lock(mutex_);
    nodes_ = std::move(names);
  }

  void measure_machine() {
    order(effort_);
    const AcceptanceLead lead{clock_, wanted_.nodes_per_switch,
                              [this](const AcceptanceMeasurements& m) { return why_stop(wanted_, m); }, measured_};
    measure_acceptance(cell_.setup, effort_, session(), &lead);
  }

  void ask_standstills() {
    if (job_ == nullptr) return;
    order(effort_);
    measured_.standstill_s = standstills(*job_);
  }

  /// By what collectives and products took.
  double step_s() const {
    double fastest = 0;  // bytes a second
    for (const CollectiveRow& row : measured_.ladder) {
      if (row.in_place) fastest = std::max(fastest, row.in_place->algorithm_gb_per_s(row.message) * 1e9);
    }
    std::vector<double> rates;
    for (const std::vector<double>& round : measured_.device_rates)
      rates.insert(rates.end(), round.begin(), round.end());
    return about_step_s(cell_.setup, fastest, rates.empty() ? 0 : account::median(std::move(rates)));
  }

  void measure_steps() {
    const std::string name = fmt::format("training steps of {}", wanted_.run);
    if (std::ranges::any_of(measured_.ladder, &CollectiveRow::has_wrong_data))
      return clock_.skip(name, "a collective gave a wrong result");
    config::RunConfig config = cell_.setup.config;
    config.train.steps = clock_.begin_fitting(name, static_cast<int>(config.train.steps), kFewestSteps,
                                              static_cast<int>(config.train.warmup), step_s(), kShareOfSteps);
    if (config.train.steps == 0) return;
    // Estimates of steps that nobody has seen may be far too small.
    Trial trial = whole_trial(config, job_, {}, [this] { return clock_.is_spent(); });
    if (!trial.metrics) return clock_.skip(name, clock_.spent());
    trial_ = std::move(trial);
    add_meanwhile(measured_, *trial_);
    measured_.arrivals = accept::arrivals_of({cell_.setup.schedules, trial_->measurement.traces});
  }

  double round_s() const { return trial_->metrics->step_ms.median * 1e-3 * kStepsOfARound; }

  void measure_parts() {
    if (!trial_) return clock_.skip(kParts, "the training steps were not measured");
    const int rounds = clock_.begin_fitting(kParts, effort_.arm_rounds, kFewestArmRounds, 0, round_s(), kShareOfParts);
    if (rounds == 0) return;
    const engine::Setup arms = set_up_arms(cell_.setup.config, rounds);
    const engine::Measurement brought = run_parts(arms, rounds);
    if (!has_a_round(brought)) return clock_.skip(kParts, clock_.spent());
    const account::RunView run(arms.schedules, brought.traces);
    measured_.arms = arm_rounds(run);
    if (brought.interrupted) {
      clock_.note(fmt::format("{} of {} rounds: {}", measured_.arms.size(), rounds, clock_.spent()));
    }
    for (accept::Arrivals& step : accept::arrivals_of(run)) measured_.arrivals.push_back(std::move(step));
  }

  /// Ends when the budget is spent: rounds may take longer than was thought, on a machine that gets busy.
  engine::Measurement run_parts(const engine::Setup& arms, int rounds) {
    AcceptanceEffort effort = effort_;
    effort.arm_rounds = rounds;
    order(effort);
    engine::Measurement brought = run_arms(arms, *cell_.data, session(), [this] { return clock_.is_spent(); });
    add_watched(measured_.gpus, brought.gpus);
    return brought;
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
  const AcceptanceEffort effort_;
  const bool full_;
  Job* const job_;
  const ProcessorTime began_ = processor_time();
  StageClock clock_;
  const char* row_ = "";  // the name of the one under way
  AcceptanceMeasurements measured_;
  std::optional<Trial> trial_;
  mutable std::mutex mutex_;  // of the next two
  std::string stage_ = "before the first stage";
  std::vector<std::string> nodes_;
};

// clang-format off
std::span<const Acceptance::Row> Acceptance::rows() {
  static constexpr Row kRows[]{
      {"names", &Acceptance::ask_names, [](Job& job, const StageOrder&) { names_of_nodes(job); }, Needs::nothing},
      {"machine", &Acceptance::measure_machine, serve_machine, Needs::nothing},
      {"steps", &Acceptance::measure_steps, nullptr, Needs::rendezvous},
      {"arms", &Acceptance::measure_parts, serve_parts, Needs::peers},
      {"soak", &Acceptance::soak, serve_parts, Needs::full},
      {"standstills", &Acceptance::ask_standstills, [](Job& job, const StageOrder&) { standstills(job); }, Needs::nothing},
  };
  return kRows;
}
// clang-format on

}  // namespace

void add_meanwhile(AcceptanceMeasurements& measured, const Trial& trial) {
  measured.others_share = std::max(measured.others_share, trial.others_share);
  add_watched(measured.gpus, trial.measurement.gpus);
}

double about_step_s(const engine::Setup& setup, double bytes_per_s, double flops_per_s) {
  double bytes = 0, flops = 0;
  for (const plan::Unit& unit : setup.plan.units) {
    bytes += 3 * static_cast<double>(unit.layout.gathered_numel() * size_of(setup.plan.param_dtype));
  }
  for (const plan::ModuleSizes& module : setup.sizes) {
    flops += module.forward_flops + module.recompute_flops + module.backward_flops;
  }
  return (bytes_per_s > 0 ? bytes / bytes_per_s : 0) + (flops_per_s > 0 ? flops / flops_per_s : 0);
}

Measured measure_stages(const config::Acceptance& wanted, const Cell& cell, const Patience& patience, Job* job,
                        const LostWork& lost, const std::function<void(const Measured&)>& keep) {
  Acceptance acceptance(wanted, cell, patience, job);
  acceptance.measure(patience.limit_s, lost, keep);
  return std::move(acceptance).take();
}

void serve_acceptance(Job& job, const JsonPart& order) {
  const StageOrder told = fields<StageOrder>().read(order);
  for (const Acceptance::Row& row : Acceptance::rows()) {
    if (row.name == told.stage && row.serve != nullptr) return row.serve(job, told);
  }
  order.at("stage").refuse("a stage that ranks serve");
}

nlohmann::json settings_compared(const config::Acceptance& wanted, const config::RunConfig& config) {
  return {{"matrix", wanted.matrix}, {"memory_mib", wanted.memory_mib}, {"config", config::to_json(config)}};
}

void write_acceptance(const std::filesystem::path& folder, const AcceptanceReport& report,
                      const AcceptanceMeasurements& measured, const World& world, const nlohmann::json& settings) {
  console().print(acceptance_table(report, console().verbose()));
  const std::string result = result_text(acceptance_json(report, measured, world, settings));
  write_file(folder / "result.json", result);
  write_file(folder / "junit.xml", acceptance_junit(report));
  write_file(folder / "summary.md", acceptance_markdown(report, sha256(result)));
  write_file(folder / "metrics.prom", acceptance_metrics(report));
  const NodeLists nodes = node_lists(report);
  write_file(folder / "pass_nodes.txt", host_lines(nodes.pass));
  write_file(folder / "fail_nodes.txt", host_lines(nodes.fail));
  console().info(fmt::format("written to {}", folder.string()));
}

int report_lost(const std::filesystem::path& folder, const AcceptanceReport& report, const config::RunConfig& config,
                const std::vector<std::string>& command_line, ExitCode code) {
  write_acceptance(folder, report, {}, current_world(config, nullptr, command_line), nlohmann::json());
  return static_cast<int>(code);
}

int accept_on_own_ranks(const config::Acceptance& wanted, const config::RunConfig& config,
                        const std::filesystem::path& folder, const std::vector<std::string>& command_line,
                        double limit_s, int ranks) {
  constexpr double kBackstop_s = 30;  // rank 0 ends the job itself at its limit, and can say more
  std::vector<std::string> words(command_line.begin() + 1, command_line.end());
  words.insert(words.end(), {"--out", folder.string()});
  keep_what_is_done(true);
  limit_s += kBackstop_s;
  const auto ends = launch::start_ranks(words, ranks, {.limit_s = limit_s}, interrupt_requested);
  if (interrupt_requested()) return static_cast<int>(ExitCode::interrupted);
  return report_ends(wanted, config, folder, command_line, limit_s, ends);
}

int report_ends(const config::Acceptance& wanted, const config::RunConfig& config, const std::filesystem::path& folder,
                const std::vector<std::string>& command_line, double limit_s,
                const std::vector<launch::RankEnd>& ends) {
  // A configuration that a rank refuses says nothing of its machine, whatever then becomes of those that wait for it.
  const int refused = static_cast<int>(ExitCode::bad_input);
  if (std::ranges::count(ends, refused, &launch::RankEnd::code) > 0) return refused;
  const std::vector<LostRank> lost = lost_of(ends, limit_s);
  if (lost.empty()) return ends.front().code;
  const bool on_processors = config.device.backend == config::BackendKind::cpu;
  const AcceptanceReport report = judge_lost_ranks(wanted, static_cast<int>(ends.size()), {}, lost, on_processors,
                                                   told_by_rank_0(folder / "result.json"));
  const ResultFolder again("accept", folder.string(), OldResult::overwrite);
  return report_lost(folder, report, config, command_line, ExitCode::rank_failed);
}

std::string acceptance_plan(const config::Acceptance& wanted, const std::string& profile, config::RunConfig config,
                            std::optional<int> asked, const Patience& patience) {
  const int nodes = asked.value_or(wanted.nodes);
  if (nodes < wanted.nodes) {
    throw ConfigError(fmt::format("--nodes {}: {} is about {} nodes or more.", nodes, profile, wanted.nodes));
  }
  const int each = wanted.ranks_per_node > 0 ? wanted.ranks_per_node
                   : wanted.ranks > 0        ? wanted.ranks
                                             : static_cast<int>(config.mesh.ranks);
  const int ranks = nodes * each;
  config.mesh.ranks = ranks;
  config::validate(config);
  const engine::Setup setup = engine::set_up(std::move(config));
  Plan plan(wanted, setup, nodes, patience.full);
  std::string text =
      fmt::format("Plan of an acceptance of {} ranks on {} {}, compared with {}. Nothing was measured.\n\n", ranks,
                  nodes, nodes == 1 ? "node" : "nodes", wanted.fabric);
  text += format_table(plan.stages(patience.full));
  if (plan.assumed()) text += "* by assumed rates of slow hardware: the profile has no reference\n";
  text += fmt::format(
      "Together at most about {} (--budget): stages repeat less if time is short. Ranks that hang are ended after {} "
      "(--limit).\n\n",
      format_duration(patience.budget_s), format_duration(patience.limit_s));
  if (const Table floors = plan.floors(); floors.rows.empty()) {
    text += "No figure has a floor: the profile has no [[reference]]. Ranks and links are compared with their peers.\n";
  } else {
    text += format_table(floors);
  }
  const std::string words =
      fmt::format("fsdpbench accept {}{} --out acceptance", profile, patience.full ? " --full" : "");
  text += nodes > 1 ? fmt::format("\nsrun --nodes={} --ntasks-per-node={} {}\nmpirun -n {} --map-by ppr:{}:node {}\n",
                                  nodes, each, words, ranks, each, words)
                    : fmt::format("\n{}\nsrun --ntasks={} {}\n", words, ranks, words);
  return text + fmt::format("fsdpbench gate acceptance --against runs/baselines{}\n",
                            wanted.rated_pct > 0
                                ? fmt::format("    # exit code 13: fewer than {:.0f} % of the rules were rated",
                                              wanted.rated_pct)
                                : "");
}

}  // namespace fsdpbench::app
