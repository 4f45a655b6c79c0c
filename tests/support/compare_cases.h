#pragma once

#include <vector>

#include "account/judge.h"
#include "account/run_view.h"
#include "support/tiny_run.h"

namespace fsdpbench::testing {

/// Trials of each side in a comparison.
inline constexpr int kComparedTrials = 12;

/// An emulated step of some 10 ms on two ranks, the same at any speed of the machine.
inline config::RunConfig compared_step() {
  config::RunConfig c = tiny_decoder();
  c.mesh.ranks = 2;
  c.train.steps = 3;
  c.train.warmup = 1;
  c.emulate.compute_tflops = 1.2e-4;
  c.emulate.link_gb_per_s = 0.02;
  return c;
}

/// A configuration all of whose ops take `factor` times as long.
inline config::RunConfig slower(config::RunConfig c, double factor) {
  *c.emulate.compute_tflops /= factor;
  *c.emulate.link_gb_per_s /= factor;
  return c;
}

/// Each side's trials take turns, as `compare` does it: A first, then B first. `run(setup)` is one trial.
template <typename Run>
account::Difference compare_in_turns(const config::RunConfig& a, const config::RunConfig& b, Run&& run) {
  struct Side {
    engine::Setup setup;
    std::vector<std::vector<double>> trials;
    void add(Run& run_it) {
      const engine::Measurement m = run_it(setup);
      std::vector<double>& steps_ms = trials.emplace_back();
      const account::RunView view(setup.schedules, m.traces);
      for (const account::StepRecords& step : view.steps()) {
        steps_ms.push_back(static_cast<double>(step.slowest_ns()) * 1e-6);
      }
    }
  };
  Side sides[] = {{engine::set_up(settled(a)), {}}, {engine::set_up(settled(b)), {}}};
  for (int trial = 0; trial < kComparedTrials; ++trial) {
    sides[trial % 2].add(run);
    sides[1 - trial % 2].add(run);
  }
  return account::judge_in_turns(sides[0].trials, sides[1].trials);
}

}  // namespace fsdpbench::testing
