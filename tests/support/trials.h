#pragma once

#include <string>
#include <vector>

#include "runs/trial_log.h"

namespace fsdpbench::testing {

/// A trial as the log holds it, with every kind of number that result files have, none of them measured.
inline app::Trial made_up_trial(const std::vector<double>& steps_ms) {
  app::Trial trial;
  trial.world.program = {"0.1.0", "abc", false, "Release", "", "GNU 12"};
  trial.world.date = "2026-01-01T00:00:00+0000";
  trial.world.backend = "cpu";
  trial.world.ranks = 2;
  trial.world.launcher = "threads of one process";
  trial.world.cpu = "a processor";
  trial.world.threads = 2;
  trial.world.memory_bytes = 1 << 30;
  trial.world.libraries = {{"fmt", "9.1.0"}};
  trial.world.places = {{"here", {{"timer", "the host's clock"}}}, {"here", {}}};
  trial.seconds = 0.5;
  account::RunMetrics& m = trial.metrics.emplace();
  m.step_ms = account::summarize(steps_ms);
  m.steps_ms = steps_ms;
  m.compute_ms = steps_ms.front() / 2;
  m.comm_ms = 0.25;
  m.tokens_per_s = 1000;
  m.overlap_pct = 75;
  m.settling = account::Settling{1, false};
  m.ranks.resize(2);
  m.ranks[1].step_ms = m.step_ms;
  m.ranks[1].transfer_ms[1] = 0.125;
  trial.causes.emplace();
  trial.causes->step_ms = m.step_ms.median;
  trial.causes->stalled_ms = 0.5;
  trial.causes->small_ms = 0.125;
  trial.causes->causes = {{account::Cause::straggler, 0.375, 12.5, "R", "all_gather R", 1, {}, "look at rank 1"}};
  account::Counterfactual without{account::Cause::straggler, "", 1, 2.5, 0.25, 0.125, 0.5, {}, {}, false};
  without.interval = account::IntervalKind::bootstrap;
  trial.causes->causes.front().without = without;
  without.cause = account::Cause::copy;
  without.late_rank = -1;
  without.set = "fsdp.layout=flat";
  without.more_bytes = -4096;
  without.advised = true;
  trial.causes->knobs = {without};
  trial.causes->typical_ms = 0.75 * m.step_ms.median;
  trial.causes->jitter = account::StepJitter{0.25 * m.step_ms.median, 0.125, 0.0625, 0};
  trial.causes->late_ranks = {{1, account::Lateness{40, 39, 1e-9, m.step_ms, true}, {}, {}}};
  trial.flops = account::ModelFlops{1e6, 0.5, 1, 50};
  trial.wire = {24, 12, 0};
  trial.expected_wire = {24, 12, 0};
  trial.device_bytes = 16;
  trial.memory.peak_occupied_total = 8;
  trial.memory.peak_occupied[0] = 8;
  trial.memory.reserved = 16;
  trial.estimated_memory = trial.memory;
  trial.estimated_memory.reserved = 0;
  return trial;
}

inline app::LoggedTrial logged(const std::string& cell, std::uint64_t number, const std::vector<double>& steps_ms) {
  app::LoggedTrial trial;
  trial.cell = cell;
  trial.number = number;
  trial.trial = made_up_trial(steps_ms);
  return trial;
}

inline app::LoggedTrial failed(const std::string& cell, std::uint64_t number, const std::string& reason) {
  app::LoggedTrial trial;
  trial.cell = cell;
  trial.number = number;
  trial.reason = reason;
  trial.exit_code = 2;
  return trial;
}

}  // namespace fsdpbench::testing
