#pragma once

#include <optional>
#include <string>

#include "app/experiment/cell.h"
#include "config/accuracy.h"
#include "config/calibration.h"
#include "config/cluster.h"
#include "metrics/run_metrics.h"
#include "replay/measured_times.h"
#include "replay/uncertainty.h"

namespace fsdpbench::app {

/// One step of the steady state on the computed clock.
struct SteadyStep {
  double ms = 0;          ///< of the slowest rank
  double exposed_ms = 0;  ///< exposed communication, mean over ranks
};
/// Of a simulation whose ops take `times`.
SteadyStep steady_step(const engine::Setup& setup, const replay::OpTimes& times);
/// What `measured`, a run of `setup`, is off by `calibration`.
config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const metrics::RunMetrics& measured);

/// How sure a simulation's step is.
struct PredictionInterval {
  std::string from;                                   ///< OpTimesBasis::from
  replay::ReachCounts ops{};                          ///< of the steady step; all 0 where op times were given
  bool leaves_ranks_out = false;                      ///< replay::Uncertainty::leaves_ranks_out
  std::optional<replay::Bounds> step_ms, exposed_ms;  ///< 95 of 100 such predictions should hold; absent where op times
                                                      ///< were given, and so are not in doubt
};

/// Walks the step with op times that are as likely as the cell's (replay::Uncertainty), before anything is drawn, and
/// puts what comes out around what `predicted` says. Where more than engine::kMostRecordedRanks differ, ranks are
/// taken as alike here: what a rank is slowed down by is in the prediction, and hardly changes how sure it is.
PredictionInterval prediction_interval(const Cell& cell, const metrics::RunMetrics& predicted);

/// Of op times that come from published rates: computation is off by what trainings are, each collective by what those
/// of its sort are. Nothing was measured on the machine itself, so the best that an op can be is interpolated: its
/// cluster has rows, and its ranks and bytes lie within theirs. `times`: engine::simulated_times().
replay::Uncertainty published_uncertainty(const config::RunConfig& config, const replay::Training& training,
                                          const config::Cluster& cluster, const config::Accuracy& accuracy,
                                          const replay::OpTimes& times);

}  // namespace fsdpbench::app
