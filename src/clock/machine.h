#pragma once

#include <optional>
#include <vector>

#include "clock/forecast.h"
#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "schedule/training.h"

namespace fsdpbench::clock {

/// Least times of a steady schedule.
struct LeastTimes {
  StepCosts costs;      ///< of its ops, whatever runs beside them
  double issue_ns = 0;  ///< in which a host issues it, which no order of its ops shortens; 0: its ops say all
};

/// The clock of the machine where a training is to run, and what a search must know of it beside. May be asked from
/// several threads at once.
class Machine : public Clock {
 public:
  /// The sizes of the modules of a valid configuration.
  virtual std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const = 0;
  schedule::Training training(const config::RunConfig& config) const {
    return schedule::make_training(config, sizes(config));
  }
  virtual LeastTimes least_times(const schedule::Training& training) const = 0;
  /// Whether op times are in doubt, so that Changes::draw changes them.
  virtual bool in_doubt() const = 0;
  /// Beside that: 95 of 100 steps of `training` lie, over one of the configuration in force, within so much of what is
  /// forecast, as a share. `gain`: what that is less than 1. Absent: nobody knows.
  virtual std::optional<double> doubt(const schedule::Training& /*training*/, double /*gain*/) const { return 0; }
};

}  // namespace fsdpbench::clock
