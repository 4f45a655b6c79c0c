#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "account/cause.h"
#include "account/counterfactual.h"
#include "account/run_metrics.h"
#include "account/run_view.h"
#include "account/typical_step.h"
#include "plan/plan.h"
#include "schedule/policy.h"
#include "schedule/training.h"

namespace fsdpbench::account {

/// Time of the measured steps beyond the typical one. Negative where they took less.
struct StepJitter {
  double ms = 0;              ///< the median step, less the typical one
  double computation_ms = 0;  ///< of it, in computation …
  double stalled_ms = 0;      ///< … and while nothing computed: no cause has any of it
  double share_pct = 0;       ///< `ms`, of the median step
};

/// Reasons for which computation was not running, ranked. The shares, small_ms and jitter make stalled_ms, the exposed
/// communication, exposed copies and idle time of RunMetrics together.
struct CauseReport {
  double step_ms = 0;     ///< the median step
  double typical_ms = 0;  ///< the typical one, of its slowest rank; without one the median step
  double stalled_ms = 0;
  std::optional<StepJitter> jitter;   ///< absent without a typical step
  std::vector<LateRank> late_ranks;   ///< for certain (late_ranks.h)
  std::vector<Counterfactual> knobs;  ///< that gain more than the noise, the most first
  /// Largest first. Those under kSmallSharePct of the step are only in small_ms, unless lifting them would gain as
  /// much.
  std::vector<CauseShare> causes;
  double small_ms = 0;
  std::optional<TypicalStalls> typical_stalls;  ///< absent without a typical step
  std::string no_typical_because;               ///< where there is none, a sentence without its full stop
  std::vector<ToldStall> example;               ///< of the slowest rank in the step of median length
  int example_rank = 0;
  int example_place = 0;  ///< of that rank among those in view (run_view.h)
  std::int32_t example_step = 0;
  EvenRows even_rows;  ///< with which the stalls of this run's steps are found
};
inline constexpr double kSmallSharePct = 2.0;

/// Causes in the middle steps in view as they are, with nothing left out as jitter. Throws a check_failed Error
/// if the stalls of any rank and step do not partition the time without computation to the nanosecond. At least one
/// measured step.
CauseReport rank_causes(const RunView& run, const plan::Plan& plan, const schedule::Policy& policy,
                        const std::optional<LinkModel>& link, const EvenRows& even_rows = {});

/// Causes in the typical step. If there is none, the result is that of rank_causes(), with the reason: an op with work
/// was never timed, or only some ranks are in view and they do not suffice (typical_step.h). `metrics`: of the same
/// run. Throws as rank_causes() does.
CauseReport report_causes(const RunView& run, const schedule::Training& what, const RunMetrics& metrics,
                          const EvenRows& even_rows = {}, const MachineFacts& machine = {});

}  // namespace fsdpbench::account
