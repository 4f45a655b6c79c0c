#pragma once

#include <optional>
#include <string>

#include "account/run_metrics.h"
#include "clock/uncertainty.h"
#include "runs/cell.h"

namespace fsdpbench::app {

/// How sure a simulation's step is.
struct PredictionInterval {
  std::string from;                                   ///< OpTimesBasis::from
  clock::ReachCounts ops{};                          ///< of the steady step; all 0 where op times were given
  bool leaves_ranks_out = false;                      ///< clock::Uncertainty::leaves_ranks_out
  std::optional<clock::Bounds> step_ms, exposed_ms;  ///< 95 of 100 such predictions should hold; absent where op times
                                                      ///< were given, and so are not in doubt
};

/// Walks the step with op times that are as likely as the cell's (clock::Uncertainty), before anything is drawn, and
/// puts what comes out around what `predicted` says. Where more than engine::kMostRecordedRanks differ, ranks are
/// taken as alike here: what a rank is slowed down by is in the prediction, and hardly changes how sure it is.
PredictionInterval prediction_interval(const Cell& cell, const account::RunMetrics& predicted);

}  // namespace fsdpbench::app
