#pragma once

#include <optional>
#include <vector>

#include "metrics/settling.h"
#include "metrics/statistics.h"
#include "plan/groups.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::metrics {

/// One rank's own steps, whoever was slowest.
struct RankMetrics {
  Summary step_ms;
  double compute_ms = 0;
  double exposed_comm_ms = 0;
  double idle_ms = 0;
};

/// The numbers of a run. Each measured step counts with its slowest rank; times in milliseconds are medians over steps.
struct RunMetrics {
  Summary step_ms;
  std::vector<double> steps_ms;  ///< each step's own, in order
  double compute_ms = 0;
  double comm_ms = 0;
  double exposed_comm_ms = 0;
  double exposed_copy_ms = 0;
  double idle_ms = 0;
  std::optional<double> overlap_pct;   ///< absent without communication
  double tokens_per_s = 0;             ///< over all ranks, at the median step
  std::optional<double> bound_ratio;   ///< median over steps of step / max-plus bound of its own op durations
  std::vector<RankMetrics> ranks;      ///< by rank
  std::optional<Settling> settling;    ///< of the measured steps; absent if there are too few
  std::optional<double> aa_noise_pct;  ///< what two halves of the steps differ by (compare.h); absent likewise
};

/// Checks every identity of step_breakdown.h on every rank and step; throws if one fails. At least one measured step.
/// `tokens_per_step`: over all ranks and microbatches.
RunMetrics run_metrics(const schedule::Schedules& schedules, const plan::Groups& groups,
                       const std::vector<trace::RankTrace>& traces, double tokens_per_step);

}  // namespace fsdpbench::metrics
