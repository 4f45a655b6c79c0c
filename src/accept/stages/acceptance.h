#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/stages/stage_clock.h"
#include "accept/stages/topology.h"
#include "config/accuracy.h"
#include "engine/setup.h"
#include "runs/cell.h"
#include "runs/job.h"
#include "runs/trial.h"

namespace fsdpbench::app {

inline constexpr const char* kAcceptanceService = "accept";  ///< the command's name

/// One acceptance, stage by stage, on rank 0; the others of a job serve it. All stages are rows of one table, in
/// acceptance.cpp: what rank 0 does, what the others do, and what must be known for it.
class Acceptance {
 public:
  /// `full`: more iterations, so that tails can be rated, and a soak. `job`: null, or the one whose rank 0 this is. All
  /// must outlive this. Throws ConfigError if a file of `wanted` cannot be read.
  Acceptance(const config::Acceptance& wanted, const Cell& cell, bool full, double budget_s, Job* job);

  /// Hears once that the acceptance comes to nothing, before anything is ended: which rank is lost (-1: not known), in
  /// a sentence why; `hangs`: the ranks did not come to an end in time. On any thread.
  using Lost = std::function<void(int rank, const std::string& why, bool hangs)>;

  /// All stages, which a job must have done in `limit_s`, else it is ended. Throws BackendError if a rank is lost.
  void measure(double limit_s, const Lost& lost);

  /// What is measured now, in the words in which it was announced. For any thread.
  std::string stage() const;
  /// By rank, as lists of nodes have them; empty names before they are known. For any thread.
  std::vector<std::string> nodes() const;

  const AcceptanceMeasurements& measured() const { return measured_; }
  /// Of the run; null: its steps were not measured.
  const Trial* trial() const { return trial_ ? &*trial_ : nullptr; }

 private:
  friend void serve_acceptance(Job& job, const JsonPart& order);
  struct Row;
  static const std::vector<Row>& rows();

  void measure();
  void say(const std::string& stage);
  launch::Session* session() const { return job_ == nullptr ? nullptr : &job_->session(); }
  void order(const AcceptanceEffort& effort);
  double step_s() const;
  double round_s() const;
  engine::Measurement run_parts(const engine::Setup& arms, int rounds);

  void ask_names();
  void measure_machine();
  void measure_steps();
  void measure_parts();
  void soak();
  void ask_standstills();

  const config::Acceptance& wanted_;
  const Cell& cell_;
  const Topology topology_;
  const AcceptanceEffort effort_;
  const bool full_;
  Job* const job_;
  StageClock clock_;
  const char* row_ = "";  // the name of the one under way
  AcceptanceMeasurements measured_;
  std::optional<Trial> trial_;
  mutable std::mutex mutex_;  // of the next two
  std::string stage_ = "before the first stage";
  std::vector<std::string> nodes_;
};

/// The part of every other rank of a job in a stage that rank 0 orders.
void serve_acceptance(Job& job, const JsonPart& order);

/// What a gate compares: sizes of the profile, and the run's configuration.
nlohmann::json settings_compared(const config::Acceptance& wanted, const config::RunConfig& config);

/// Prints the judgement, and writes result.json and its checksum, junit.xml, summary.md, metrics.prom and lists of
/// nodes.
void write_acceptance(const std::filesystem::path& folder, const AcceptanceReport& report,
                      const AcceptanceMeasurements& measured, const World& world, const nlohmann::json& settings);

/// The same of one that measured nothing, because ranks or devices are not there. Returns `code`.
int report_lost(const std::filesystem::path& folder, const AcceptanceReport& report, const config::RunConfig& config,
                const std::vector<std::string>& command_line, ExitCode code);

}  // namespace fsdpbench::app
