#pragma once

#include <vector>

#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "replay/op_times.h"
#include "schedule/training.h"

namespace fsdpbench::tune {

/// What is taken to be otherwise on a machine than it is known to be.
struct Otherwise {
  double link = 1;     ///< bytes flow so many times as fast; what a hop takes stays
  double compute = 1;  ///< modules compute so many times as fast
  int draw = -1;       ///< op times as likely as the known ones: one of replay::Uncertainty::kDraws; -1: the known ones
};

/// What a training's ops take where it is to run: rates, a cluster, a calibration or a finished run. Functions may be
/// called from several threads at once; the same arguments give the same answer.
class Machine {
 public:
  virtual ~Machine() = default;

  /// Of the modules of a valid configuration.
  virtual std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const = 0;
  schedule::Training training(const config::RunConfig& config) const {
    return schedule::make_training(config, sizes(config));
  }
  /// A step of the steady state on the computed clock, of the slowest rank, in nanoseconds.
  virtual double step_ns(const schedule::Training& training, const Otherwise& otherwise = {}) const = 0;
  /// What the ops of the steady schedule take at least, whatever runs beside them.
  virtual replay::StepCosts least_costs(const schedule::Training& training) const = 0;
  /// Whether the op times are in doubt, so that Otherwise::draw changes them.
  virtual bool in_doubt() const = 0;
};

}  // namespace fsdpbench::tune
