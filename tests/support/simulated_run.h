#pragma once

#include "metrics/typical_step.h"
#include "support/tiny_run.h"

namespace fsdpbench::testing {

/// A run of an emulation on the computed clock, and its typical step.
struct SimulatedRun {
  explicit SimulatedRun(const config::RunConfig& asked)
      : config(settled(asked)),
        setup(engine::set_up(config)),
        measurement(engine::simulate(setup, engine::simulated_times(setup, nullptr))),
        view(setup.schedules, measurement.traces),
        what{setup.plan, setup.policy, setup.sizes, config},
        typical(view, what, 0.1) {}
  SimulatedRun(const SimulatedRun&) = delete;
  SimulatedRun& operator=(const SimulatedRun&) = delete;

  config::RunConfig config;
  engine::Setup setup;
  engine::Measurement measurement;
  metrics::RunView view;
  metrics::Diagnosed what;
  metrics::TypicalStep typical;  ///< up to 0.1 ms is noise
};

}  // namespace fsdpbench::testing
