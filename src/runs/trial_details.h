#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/gpu_steps.h"
#include "account/path_report.h"
#include "account/run_details.h"
#include "base/memory_category.h"
#include "engine/checkpoint_saver.h"
#include "engine/setup.h"
#include "hardware/gpu_health.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// How well a rank's clock is known: its times are on rank 0's.
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

/// What is alive at the peak that the schedule predicts.
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

/// How a rank's GPU fared.
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

/// What result.json has of a trial beyond its numbers: phases, units, collectives, every step, memory over time.
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
