#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/fidelity.h"
#include "account/gpu_steps.h"
#include "account/jitter_spread.h"
#include "account/model_flops.h"
#include "account/run_metrics.h"
#include "base/lane_pool.h"
#include "engine/run.h"
#include "plan/communication.h"
#include "runs/cell.h"
#include "runs/prediction_interval.h"
#include "runs/world.h"

namespace fsdpbench::app {

/// One timed run of a cell: what it gave and what it was measured with.
struct Trial {
  World world;
  bool interrupted = false;  ///< the user ended it after the steps it has
  double others_share = 0;   ///< of the busiest host's processors, what other programs took meanwhile; 0: not known
  double seconds = 0;        ///< from the first preparation to the last number
  std::optional<account::RunMetrics> metrics;  ///< absent if no measured step was completed; so are the next two
  std::optional<account::CauseReport> causes;
  std::optional<account::ModelFlops> flops;
  std::optional<account::Fidelity> fidelity;    ///< absent without metrics, and if nothing is emulated
  std::string diverged_because;                 ///< why training has diverged; empty: it has not
  std::vector<account::Throttling> throttled;   ///< GPUs that did not run as fast as they could
  std::vector<std::string> caveats;             ///< what a reader must know first; the gravest first
  std::optional<account::JitterSpread> spread;  ///< of a simulation with jitter
  std::optional<PredictionInterval> sureness;   ///< of a simulation
  std::vector<std::string> choices;             ///< of a simulation, clock::OpTimes::choices
  plan::CommunicationVolume wire;               ///< bytes that rank 0 sent a step, as counted
  plan::CommunicationVolume expected_wire;      ///< by formula
  PoolStatistics memory;                        ///< of the rank that needed most
  PoolStatistics estimated_memory;              ///< from the schedule alone
  std::optional<std::int64_t> device_bytes;     ///< memory of the GPU that was simulated
  std::optional<bool> fits;                     ///< into device_bytes, as far as is known
  std::optional<clock::CachingAllocator::Statistics> caching_allocator;  ///< Cell::caching_allocator
  PoolStatistics host_memory;       ///< pinned, of the rank that needed most; all 0 without offload
  engine::Measurement measurement;  ///< what the ranks recorded; empty in a trial that was read from a file
};

/// Trial::others_share if it is kQuietShare or more and may have slowed the run, because processors computed or moved
/// bytes; else 0. If both are emulated, they keep their own time, and account::Fidelity says where they could not.
double disturbing_share(const Trial& trial);

/// Trains all ranks of a cell: on threads of this process, or on the processes of a job (job/job_run.h).
using Train = std::function<engine::Measurement(const Cell& cell, const engine::RunHooks& hooks)>;
engine::Measurement train_on_threads(const Cell& cell, const engine::RunHooks& hooks);

/// Trains, computes the metrics and checks them against what plan and formulas say. Throws what a failing rank threw,
/// and Error with ExitCode::check_failed if a measurement contradicts itself.
Trial run_trial(const Cell& cell, const engine::RunHooks& hooks, World world, const Train& train = train_on_threads);

}  // namespace fsdpbench::app
