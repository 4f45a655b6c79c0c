#pragma once

#include <cstdint>
#include <vector>

#include "base/link_model.h"
#include "plan/module_sizes.h"
#include "replay/replay.h"
#include "schedule/schedule.h"

namespace fsdpbench::metrics {

/// The longest step that is modelled: 104 days. A double holds every nanosecond of it.
inline constexpr std::int64_t kLongestStep_ns = std::int64_t{1} << 53;

/// How fast every rank and its link are taken to be.
struct ModelledRates {
  double flops_per_second = 0;
  LinkModel link;  ///< looked at only if there is a collective
};

/// Nanoseconds of each op, the same on all ranks: forward, recomputation and backward take their FLOPs / rate; a
/// collective of n ranks n-1 latencies and the bytes of a ring / bandwidth, an all-reduce both twice; all else nothing.
/// What it does not know: two communicators that share a link, ranks that differ, the time of copies and optimizer.
/// `sizes`: of each module, for one microbatch.
replay::OpDurations modelled_durations(const schedule::Schedule& schedule, const std::vector<plan::ModuleSizes>& sizes,
                                       const plan::Groups& groups, const ModelledRates& rates);

/// Whether ops of these durations, one after another, take longer than kLongestStep_ns.
bool too_long(const replay::OpDurations& durations);

/// A step without a machine, in nanoseconds.
struct StepPrediction {
  std::int64_t step = 0;           ///< the schedule's longest path (max_plus_bound)
  std::int64_t computation = 0;    ///< sum over the compute lane
  std::int64_t communication = 0;  ///< sum over all collectives of a rank
  /// Something runs at any time, and it is either a computation or a collective.
  std::int64_t exposed_communication() const { return step - computation; }
};

/// The step that the schedule takes with modelled_durations(), which must not be too_long(). Throws nothing; one rank
/// is walked, for all are equal.
StepPrediction predict_step(const schedule::Schedule& schedule, int event_count,
                            const std::vector<plan::ModuleSizes>& sizes, const plan::Groups& groups,
                            const ModelledRates& rates);

}  // namespace fsdpbench::metrics
