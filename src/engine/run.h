#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/executor.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// Everything that is decided before a run starts.
struct Preparation {
  config::RunConfig config;  ///< valid, mesh filled in
  plan::Plan plan;
  std::unique_ptr<model::Model> model;
  std::vector<plan::ModuleSizes> sizes;
  schedule::Schedules schedules;
  PoolStatistics memory;  ///< what a rank will need, from the schedule alone
};

/// Plan, model sizes, schedules and memory of a valid configuration. Runs nothing.
Preparation prepare(const config::RunConfig& config);

/// How a run talks to its caller. Any may be empty.
struct RunHooks {
  /// After each step, on rank 0's thread: steps done (warm-up included), mean loss over ranks (absent if nothing
  /// computes).
  std::function<void(std::int64_t done, std::optional<double> loss)> progress;
  /// Asked before each step; true ends the run after the steps done so far.
  std::function<bool()> stop;
  /// Initial parameters; empty: model/initialize.h with train.seed.
  FillParameter fill;
};

/// What a run measured.
struct RunResult {
  std::int64_t steps_done = 0;                     ///< warm-up included
  bool interrupted = false;
  std::vector<double> losses;                      ///< per step, warm-up included; empty if nothing computes
  std::optional<std::string> parameters_digest;    ///< absent if nothing computes
  std::vector<std::vector<float>> parameters;      ///< final masters by canonical index; empty if nothing computes
  std::vector<trace::RankTrace> traces;            ///< by rank, measured steps only
  std::vector<PoolStatistics> memory;              ///< by rank
  std::vector<backend::WireBytes> wire_bytes;      ///< by rank, of the measured steps
};

/// Trains train.warmup + train.steps steps on `backend`. Throws what the first failing rank threw.
RunResult run(backend::Backend& backend, const Preparation& preparation, const BatchSource& batches,
              const RunHooks& hooks = {});

}  // namespace fsdpbench::engine
