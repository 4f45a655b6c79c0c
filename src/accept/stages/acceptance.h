#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"
#include "accept/stages/measure_acceptance.h"
#include "base/clock.h"
#include "config/accuracy.h"
#include "launch/own_ranks.h"
#include "runs/cell.h"
#include "runs/job_run.h"
#include "runs/trial.h"

namespace fsdpbench::app {

inline constexpr const char* kAcceptanceService = "accept";  ///< the command's name

struct Patience {
  bool full = false;    ///< more iterations, so that tails can be rated, and a soak
  double budget_s = 0;  ///< for all stages
  double limit_s = 0;   ///< a job that goes on for longer is ended
  std::function<double()> now_s = [] { return static_cast<double>(now_ns()) * 1e-9; };  ///< the clock of the budget
};

struct Measured {
  AcceptanceMeasurements raw;
  std::optional<Trial> trial;  ///< of the run; absent: its steps were not measured
};

/// Hears once that an acceptance comes to nothing, before anything is ended. `nodes`: by rank, as lists of nodes have
/// them; `rank`: which one is lost, -1: it is not known; `hangs`: the ranks did not come to an end in time.
using LostWork =
    std::function<void(const std::vector<std::string>& nodes, int rank, const std::string& why, bool hangs)>;

/// All stages, on rank 0; the others of a job (null: there is none) serve it. Stages are rows of one table, in
/// acceptance.cpp. Throws BackendError if a rank is lost, or its user ends it; then `keep` hears what was measured.
Measured measure_stages(const config::Acceptance& wanted, const Cell& cell, const Patience& patience, Job* job,
                        const LostWork& lost, const std::function<void(const Measured&)>& keep);

/// Adds how ranks' hosts and GPUs fared during the training's steps.
void add_meanwhile(AcceptanceMeasurements& measured, const Trial& trial);

/// Seconds of a step, about: its bytes at a rate of collectives, and its products at a rate of devices; 0: not known.
double about_step_s(const engine::Setup& setup, double bytes_per_s, double flops_per_s);

/// The part of every other rank of a job in a stage that rank 0 orders.
void serve_acceptance(Job& job, const JsonPart& order);

/// Settings that a gate compares: sizes of the profile, and the run's configuration.
nlohmann::json settings_compared(const config::Acceptance& wanted, const config::RunConfig& config);

/// Prints the judgement, and writes result.json and its checksum, junit.xml, summary.md, metrics.prom and lists of
/// nodes.
void write_acceptance(const std::filesystem::path& folder, const AcceptanceReport& report,
                      const AcceptanceMeasurements& measured, const World& world, const nlohmann::json& settings);

/// Without a launcher: starts the ranks itself, each a process, and sees to it that they end. Their rank 0 measures,
/// prints and writes into `folder`, as in any job. Returns the process exit code.
int accept_on_own_ranks(const config::Acceptance& wanted, const config::RunConfig& config,
                        const std::filesystem::path& folder, const std::vector<std::string>& command_line,
                        double limit_s, int ranks);

/// Exit code of an acceptance whose ranks, started with `limit_s` to come to an end, ended so; reports those that are
/// lost in `folder`.
int report_ends(const config::Acceptance& wanted, const config::RunConfig& config, const std::filesystem::path& folder,
                const std::vector<std::string>& command_line, double limit_s, const std::vector<launch::RankEnd>& ends);

/// Reports an acceptance that measured nothing, because ranks or devices are not there. Returns `code`.
int report_lost(const std::filesystem::path& folder, const AcceptanceReport& report, const config::RunConfig& config,
                const std::vector<std::string>& command_line, ExitCode code);

/// The text of `accept --plan`: the stages with their durations, the floors of all figures, and the commands. Nothing
/// is measured. Durations follow from the profile's references, and from assumed rates where it has none. `config`: of
/// the profile's run; `nodes`: absent: the fewest that the profile asks for, and ConfigError if it asks for more;
/// `profile`: as a person typed it.
std::string acceptance_plan(const config::Acceptance& wanted, const std::string& profile, config::RunConfig config,
                            std::optional<int> nodes, const Patience& patience);

}  // namespace fsdpbench::app
