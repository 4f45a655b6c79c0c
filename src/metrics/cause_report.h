#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/causes.h"
#include "metrics/run_view.h"
#include "plan/plan.h"
#include "schedule/policy.h"

namespace fsdpbench::metrics {

/// One cause over a whole run. Milliseconds are those of RunMetrics: means over all ranks in the run's middle steps,
/// scaled to the median step (run_view.h).
struct CauseShare {
  Cause cause = Cause::unknown;
  double ms = 0;
  double share_pct = 0;  ///< of the step
  std::string unit;      ///< label of the unit that lost most to it; empty: none
  std::string op;        ///< the op waited for there, as traces name it
  int late_rank = -1;    ///< stragglers: who came last most of the time
  std::string advice;    ///< one sentence that names the knob
};

/// Why computation was not running, ranked. The shares and small_ms add up to stalled_ms, which is the exposed
/// communication, exposed copies and idle time of RunMetrics together.
struct CauseReport {
  double step_ms = 0;  ///< the median step
  double stalled_ms = 0;
  std::vector<CauseShare> causes;  ///< largest first; those under kSmallShare of the step are only in small_ms
  double small_ms = 0;
  std::vector<Stall> example;  ///< of the slowest rank in the step of median length
  int example_rank = 0;
  int example_place = 0;  ///< of that rank among those in view (run_view.h)
  std::int32_t example_step = 0;
};
inline constexpr double kSmallSharePct = 2.0;

/// Throws a check_failed Error if the stalls of any rank and step do not partition the time without computation to
/// the nanosecond. At least one measured step.
CauseReport report_causes(const RunView& run, const plan::Plan& plan, const schedule::Policy& policy,
                          const std::optional<LinkModel>& link);

}  // namespace fsdpbench::metrics
