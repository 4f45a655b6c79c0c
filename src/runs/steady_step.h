#pragma once

#include "account/run_metrics.h"
#include "clock/op_times.h"
#include "config/calibration.h"
#include "engine/setup.h"

namespace fsdpbench::app {

/// One step of the steady state on the computed clock.
struct SteadyStep {
  double ms = 0;          ///< of the slowest rank
  double exposed_ms = 0;  ///< exposed communication, mean over ranks
};
/// The steady step of a simulation whose ops take `times`.
SteadyStep steady_step(const engine::Setup& setup, const clock::OpTimes& times);
/// What `measured`, a run of `setup`, is off by `calibration`.
config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const account::RunMetrics& measured);

}  // namespace fsdpbench::app
