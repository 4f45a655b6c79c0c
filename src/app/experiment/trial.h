#pragma once

#include <functional>
#include <optional>

#include "app/experiment/cell.h"
#include "app/experiment/world.h"
#include "base/lane_pool.h"
#include "engine/run.h"
#include "metrics/cause_report.h"
#include "metrics/run_metrics.h"
#include "plan/communication.h"

namespace fsdpbench::app {

/// How fast the model was computed. FLOPs of forward and backward; recomputation is not the model's (as MFU is
/// defined).
struct ModelRate {
  double flops = 0;               ///< of a rank and step
  double tflops = 0;              ///< of a rank: 1e12 FLOP/s at the median step
  std::optional<double> mfu_pct;  ///< of the peak, where one is stated: the emulated rate is one
};

/// One timed run of a cell: what it gave and what it was measured with.
struct Trial {
  World world;
  bool interrupted = false;                    ///< the user ended it after the steps it has
  double seconds = 0;                          ///< from the first preparation to the last number
  std::optional<metrics::RunMetrics> metrics;  ///< absent if no measured step was completed; so are the next two
  std::optional<metrics::CauseReport> causes;
  std::optional<ModelRate> rate;
  plan::CommunicationVolume wire;           ///< bytes that rank 0 sent a step, as counted
  plan::CommunicationVolume expected_wire;  ///< by formula
  PoolStatistics memory;                    ///< of the rank that needed most
  PoolStatistics estimated_memory;          ///< from the schedule alone
  engine::Measurement measurement;          ///< what the ranks recorded; empty in a trial that was read from a file
};

/// Trains all ranks of a cell: on threads of this process, or on the processes of a job (job/job_run.h).
using Train = std::function<engine::Measurement(const Cell& cell, const engine::RunHooks& hooks)>;
engine::Measurement train_on_threads(const Cell& cell, const engine::RunHooks& hooks);

/// Trains, computes the metrics and checks them against what plan and formulas say. Throws what a failing rank threw,
/// and Error with ExitCode::check_failed if a measurement contradicts itself.
Trial run_trial(const Cell& cell, const engine::RunHooks& hooks, World world, const Train& train = train_on_threads);

}  // namespace fsdpbench::app
