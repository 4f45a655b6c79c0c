#pragma once

#include <functional>

#include "account/typical_step.h"
#include "clock/op_times.h"
#include "support/tiny_run.h"

namespace fsdpbench::testing {

/// A run of an emulation on the computed clock, and its typical step.
struct SimulatedRun {
  using ChangeTimes = std::function<clock::OpTimes(const engine::Setup&, clock::OpTimes)>;
  /// `change`: of what its ops take; null: nothing.
  explicit SimulatedRun(const config::RunConfig& asked, const ChangeTimes& change = {})
      : config(settled(asked)),
        setup(engine::set_up(config)),
        measurement(engine::simulate(setup, change ? change(setup, engine::simulated_times(setup, nullptr))
                                                   : engine::simulated_times(setup, nullptr))),
        view(setup.schedules, measurement.traces),
        typical(view, setup, 0.1) {}
  SimulatedRun(const SimulatedRun&) = delete;
  SimulatedRun& operator=(const SimulatedRun&) = delete;

  config::RunConfig config;
  engine::Setup setup;
  engine::Measurement measurement;
  account::RunView view;
  account::TypicalStep typical;  ///< up to 0.1 ms is noise
};

}  // namespace fsdpbench::testing
