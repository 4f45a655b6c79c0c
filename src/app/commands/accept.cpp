#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accept/stages/acceptance.h"
#include "accept/stages/lost_ranks.h"
#include "accept/stages/stage_clock.h"
#include "app/commands/command.h"
#include "app/report_page.h"
#include "base/error.h"
#include "config/accuracy.h"
#include "config/find_file.h"
#include "config/spelling.h"
#include "launch/addresses.h"
#include "record/console.h"
#include "runs/job_run.h"
#include "runs/measure.h"
#include "runs/result_folder.h"
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
  bool verbose = false;
  bool full = false;                      ///< more iterations, so that tails can be rated, and a soak
  std::string budget;                     ///< of time, as duration_s() reads it; empty: 5 minutes, full 30
  std::optional<double> least_rated_pct;  ///< in place of the profile's rated_pct
  bool plan = false;                      ///< says what would be measured, and measures nothing
  std::optional<int> nodes;               ///< of the plan
  std::string ras;    ///< HOST:PORT of NCCL's RAS, or "off"; empty: where NCCL puts it, of GPUs only
  std::string limit;  ///< likewise: what still runs then is ended; empty: half as much again as the budget, and 2 min

  OldResult old() const { return overwrite ? OldResult::overwrite : OldResult::refuse; }
  double budget_s() const { return budget.empty() ? (full ? 1800 : 300) : duration_s(budget); }
  double limit_s() const { return limit.empty() ? std::min(1.5 * budget_s() + 120, 1e6) : duration_s(limit); }
};

bool on_processors(const config::RunConfig& config) { return config.device.backend == config::BackendKind::cpu; }

/// Measures, judges, writes result.json, junit.xml, summary.md, metrics.prom, lists of nodes and worst_step.json.
/// `job`: null, or the job whose rank 0 this is. Returns the process exit code; throws base/error.h errors.
int accept_machine(const AcceptArguments& arguments, const Call& call) {
  console().set_verbose(arguments.verbose);
  Job* const job = call.job;
  const std::string path = config::find_acceptance(arguments.profile);
  config::Acceptance wanted = config::read_acceptance(path);
  if (arguments.least_rated_pct) wanted.rated_pct = *arguments.least_rated_pct;
  const Patience patience{arguments.full, arguments.budget_s(), arguments.limit_s()};
  config::RunConfig config =
      load_config(config::find_profile(wanted.run), arguments.overrides, arguments.plan ? nullptr : placement_of(job));
  if (arguments.plan) {
    std::string profile = arguments.profile;
    for (const std::string& set : arguments.overrides) profile += " --set " + set;
    if (!arguments.budget.empty()) profile += " --budget " + arguments.budget;
    if (!arguments.limit.empty()) profile += " --limit " + arguments.limit;
    console().print(acceptance_plan(wanted, profile, std::move(config), arguments.nodes, patience));
    return 0;
  }
  if (config.device.backend == config::BackendKind::virtual_) {
    throw ConfigError("accept measures a machine; device.backend = \"virtual\" is none. Use \"cpu\" or \"cuda\".");
  }
  if (config.mesh.tensor > 1) {
    throw ConfigError(fmt::format(
        "accept finds who is to blame among ranks that shard; mesh.tensor = {} splits layers, too. Expected 1.",
        config.mesh.tensor));
  }
  const std::string stem = "accept-" + config::profile_name(path);
  if (job == nullptr) {
    if (wanted.nodes > 1) {
      throw ConfigError(
          fmt::format("{} is about {} nodes or more: start a process per rank on them, by srun, mpirun or torchrun.",
                      path, wanted.nodes));
    }
    const std::optional<int> devices = devices_here(std::string(config::to_string(config.device.backend)));
    if (devices == 0) {
      const int expected = wanted.ranks > 0 ? wanted.ranks : static_cast<int>(config.mesh.ranks);
      const ResultFolder folder(stem, arguments.out, arguments.old());
      return report_lost(folder.path(), judge_no_devices(wanted, launch::node_name(), expected), config,
                         call.command_line, ExitCode::below_floor);
    }
    const int ranks = own_ranks(wanted, arguments.overrides, config, devices);
    if (ranks > 1) {
      const std::filesystem::path folder =
          ResultFolder(stem, arguments.out, arguments.old()).path();  // rank 0 locks it
      return accept_on_own_ranks(wanted, config, folder, call.command_line, patience.limit_s, ranks);
    }
    config.mesh.ranks = ranks;
  }
  const Cell cell = open_cell(config, local_ranks(job));
  const ResultFolder folder(stem, arguments.out, arguments.old());
  const std::string ras = ras_of(arguments.ras, on_processors(config), launch::process_environment());
  const auto lost_it = [&](const std::vector<std::string>& nodes, int rank, const std::string& why, bool hangs) {
    constexpr double kRas_s = 15, kRasOfLost_s = 4;  // the watch of the job ends this process 8 s after the loss
    const std::vector<LostRank> lost{{rank, rank < 0 ? "" : nodes.at(rank), why}};
    std::vector<std::string> meanwhile;
    if (!ras.empty()) {
      meanwhile = {told_by_ras(ras, [&](const std::vector<std::string>& words) {
        return page_program_output("watch", words, hangs ? kRas_s : kRasOfLost_s);
      })};
    }
    const int ranks = static_cast<int>(nodes.size());
    report_lost(folder.path(), judge_lost_ranks(wanted, ranks, nodes, lost, on_processors(config), meanwhile), config,
                call.command_line, ExitCode::rank_failed);
  };
  // A job that its user has ended has nobody left to ask.
  const auto write = [&](const Measured& all, launch::Session* session) {
    const AcceptanceReport report = judge_acceptance(wanted, all.raw, all.trial ? &*all.trial : nullptr);
    World world = all.trial ? all.trial->world : current_world(config, session, {});
    world.command_line = call.command_line;
    write_acceptance(folder.path(), report, all.raw, world, settings_compared(wanted, cell.setup.config));
    if (all.trial) write_worst_step(folder.path() / "worst_step.json", cell.setup, *all.trial);
    return report.exit_code();
  };
  const Measured all =
      measure_stages(wanted, cell, patience, job, lost_it, [&](const Measured& so_far) { write(so_far, nullptr); });
  if (job != nullptr) job->watch().doing("judging and writing results");
  return write(all, job == nullptr ? nullptr : &job->session());
}

constexpr const char* kAcceptHelp =
    R"(Under mpirun, torchrun or srun each process is a rank; otherwise it starts the profile's ranks itself, a process
each, one per GPU. It measures, in this order:
  inventory    each rank's program, processor, kernel, libraries and GPU: names whoever differs from the majority
  rendezvous   whether as many ranks came as the profile expects
  devices      matrix products on all ranks at once, in 15 rounds: finds a slow rank
  GPUs         clocks, throttling, errors and PCIe lanes meanwhile
  launches     of kernels until the host knows their end, on all GPUs at once
  pairs        both directions, everybody with everybody up to 64 ends: finds a slow NIC, link or switch
  collectives  all-gather and reduce-scatter of the sizes of the run's units, every element checked
  scales       the same in groups of 2, 4, … all ranks
  steps        the run that the profile names: how much communication is exposed, who is late
  parts        a step's computation alone, its communication alone, and both, in turns
  soak         with --full: the parts again and again for the rest of the budget: finds who grows slower
Each rule has a verdict with figure, interval and reason: pass, fail, inconclusive, or unrated (there is no reference to
compare with). Figures that were not measured never pass. The folder gets result.json, junit.xml, summary.md,
metrics.prom (Prometheus' textfile collector) and worst_step.json (timeline of the slowest step). `fsdpbench report DIR`
draws them.

Examples
  fsdpbench accept hgx-h100-nodes --plan --nodes 32
  fsdpbench accept cpu --set mesh.ranks=6
  fsdpbench accept cpu --set mesh.ranks=4 --full --budget 10m
  srun -n 8 fsdpbench accept hgx-h100

Exit codes: 0 pass, 9 a collective gave a wrong result, 10 fail, 11 inconclusive or unrated, 13 nothing is amiss but too
few rules were rated; others: fsdpbench help exit-codes.
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
  command.option("--least-rated", &accept_it->least_rated_pct, "PCT",
                 "Share of the rules that must be rated for a pass; default: the profile's rated_pct, 50");
  command.flag("--plan", accept_it->plan, "Print stages, durations, floors and commands; measure nothing");
  command.option("--nodes", &accept_it->nodes, "N", "With --plan: of so many nodes").within(1, 1 << 20);
  command.flag("--verbose", accept_it->verbose, "Print rules, too, that were not rated");
  command.check = [accept_it] {
    if (accept_it->nodes && !accept_it->plan)
      throw ConfigError("--nodes goes with --plan; ranks are started by srun or mpirun.");
    const double least = accept_it->least_rated_pct.value_or(0);
    if (!(least >= 0 && least <= 100)) throw ConfigError(fmt::format("--least-rated {}: expected 0 to 100.", least));
  };
  command.out(accept_it->out, accept_it->overwrite, "Folder; default: runs/accept-<profile>-<date-time>").last_counts =
      true;  // the ranks that it starts are told another one
  command.runs_ranks = true;
  command.body = [accept_it](const Call& call) { return accept_machine(*accept_it, call); };
  command.serve = serve_acceptance;
  return command;
}

}  // namespace fsdpbench::app
