#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "account/run_metrics.h"
#include "backend/device.h"
#include "clock/forecast.h"
#include "config/run_config.h"
#include "launch/session.h"
#include "runs/build_info.h"
#include "runs/cell.h"

namespace fsdpbench::app {

/// Circumstances of a trial: program, machine, who started the ranks, what was emulated. "world" in result files.
struct World {
  /// Place where one rank ran, and how its device measured.
  struct RankPlace {
    std::string host;
    backend::Facts device;
  };
  BuildInfo program;
  std::vector<std::string> command_line;  ///< empty: not known, as for the cells of a sweep
  std::string date;                       ///< ISO 8601, local time with offset
  std::string backend;                    ///< as device.backend names it
  int ranks = 0;
  std::string launcher;   ///< who started the ranks, for people
  std::string transport;  ///< how their processes communicate; empty: they are threads of one process
  std::string cpu;
  int threads = 0;  ///< hardware threads that the program may use
  std::int64_t memory_bytes = 0;
  std::string kernel;
  std::string realtime;
  std::vector<std::pair<std::string, std::string>> libraries;  ///< name and version, by name
  bool emulated_link = false;
  bool emulated_compute = false;
  std::vector<RankPlace> places;  ///< by rank; empty before the trial, and if it is simulated

  /// On a computed clock: the times are of no machine, and the same whenever it is repeated.
  bool simulated() const { return backend == "virtual"; }
};

/// The world of a trial of `config` that is about to begin in this process. `session`: of the job whose rank 0 this is;
/// null: the ranks are threads. Asks the machine once a process (50 ms).
World current_world(const config::RunConfig& config, const launch::Session* session,
                    std::vector<std::string> command_line);

/// Whether trials from both may be compared: the same program, built alike, on the same machine. What an axis of a
/// sweep may change (ranks, launcher, backend, what is emulated) does not count.
bool same_program_and_machine(const World& a, const World& b);

/// Uncertainty of a simulation's step.
struct PredictionInterval {
  std::string from;                                  ///< OpTimesBasis::from
  clock::ReachCounts ops{};                          ///< of the steady step; all 0 where op times were given
  bool leaves_ranks_out = false;                     ///< clock::Uncertainty::leaves_ranks_out
  std::optional<clock::Bounds> step_ms, exposed_ms;  ///< 95 of 100 such predictions should hold; absent where op times
                                                     ///< were given, and so are not in doubt
};

/// Milliseconds that a host spends once, in the second step, by step of a mean of `train.steps`; 0: none.
double second_step_ms(const config::RunConfig& config, const clock::OpTimes& times);

/// Walks the step with op times that are as likely as the cell's (clock::Uncertainty), before anything is drawn, and
/// puts what comes out around what `predicted` says. Where more than engine::kMostRecordedRanks differ, ranks are
/// taken as alike here: what a rank is slowed down by is in the prediction, and hardly changes how sure it is. Nobody
/// knows whether what was measured is a mean that holds the second step.
PredictionInterval prediction_interval(const Cell& cell, const account::RunMetrics& predicted);

}  // namespace fsdpbench::app
