#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/critical_path.h"
#include "account/fidelity.h"
#include "account/gpu_steps.h"
#include "account/run_details.h"
#include "account/run_metrics.h"
#include "account/statistics.h"
#include "base/lane_pool.h"
#include "base/memory_space.h"
#include "engine/checkpoint.h"
#include "engine/run.h"
#include "engine/setup.h"
#include "hardware/gpu_health.h"
#include "plan/communication.h"
#include "runs/cell.h"
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
  plan::CommunicationVolume expected_wire;      ///< by the schedule
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

/// Trains, computes the metrics and checks them against what plan and schedule say. Throws what a failing rank threw,
/// and Error with ExitCode::check_failed if a measurement contradicts itself.
Trial run_trial(const Cell& cell, const engine::RunHooks& hooks, World world, const Train& train = train_on_threads);

/// Accuracy of a rank's clock: its times are on rank 0's.
struct ClockOfRank {
  int rank = 0;
  double offset_us = 0;
  double residual_us = 0;
  double drift_us_per_s = 0;
};

/// A collective of the schedule.
struct DetailedCollective {
  account::CollectiveTimes times;
  std::optional<std::string> done_by;  ///< absent: nobody knows
};

/// Time without computation of one rank in one step, since the step began.
struct CauseInterval {
  int rank = 0;
  int step = 0;
  double begin_ms = 0;
  double end_ms = 0;
  std::string cause;
};

/// Live bytes by category from each of the times on, of one rank in one step.
struct MemoryTimeline {
  int rank = 0;
  int step = 0;
  std::vector<double> time_ms;
  std::array<std::vector<std::int64_t>, kMemoryCategoryCount> live;
};

/// Memory alive at the peak that the schedule predicts.
struct MemoryAtPeak {
  struct Block {
    std::string role;
    std::string category;
    std::int64_t bytes = 0;
    std::string unit;  ///< empty: of none
  };
  std::string op;  ///< empty: the peak is there before the first
  std::int64_t live_bytes = 0;
  std::vector<Block> live;
};

/// Every measured step of every recorded rank.
struct StepsByRank {
  std::vector<std::vector<double>> by_rank;  ///< milliseconds
  std::vector<int> ranks;                    ///< which these are, where only some were recorded; else empty
};

/// State of a rank's GPU.
struct GpuOfRank {
  struct Xid {
    std::uint64_t code = 0;
    std::optional<std::int32_t> step;  ///< absent: it came between steps
  };
  int rank = 0;
  GpuHealth health;
  std::vector<account::GpuStep> steps;
  std::vector<Xid> xids;
  std::vector<account::Throttling> throttled;
};

/// Details of a trial in result.json beyond its numbers: phases, units, collectives, every step, memory over time.
struct TrialDetails {
  bool one_clock = true;  ///< all ranks have one clock, or clocks of one host
  std::vector<ClockOfRank> clocks;
  // The rest needs a measured step, and is empty without one.
  std::vector<account::PhaseTimes> phases;
  std::vector<account::UnitTimes> units;
  std::vector<DetailedCollective> collectives;
  std::optional<std::vector<CauseInterval>> exposed_intervals;  ///< absent if the trial is not rated
  std::optional<account::PathReport> path;                      ///< likewise
  StepsByRank steps;
  MemoryTimeline timeline;
  MemoryAtPeak peak_at;
  std::optional<std::int64_t> process_peak_rss_bytes;  ///< absent in a simulation
  std::vector<GpuOfRank> gpus;
};

TrialDetails trial_details(const engine::Setup& setup, const Trial& trial);

}  // namespace fsdpbench::app
