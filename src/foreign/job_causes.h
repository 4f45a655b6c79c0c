#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/intervals.h"
#include "foreign/matched_collectives.h"
#include "foreign/recognise.h"
#include "metrics/find_stalls.h"
#include "metrics/step_breakdown.h"

namespace fsdpbench::foreign {

/// One rank's step in sets of time: computation, communication and copies by the kind of the rows (Activity), clipped
/// to the step. As metrics::intervals_of(); the same identities hold (metrics::break_down).
metrics::StepIntervals intervals_of(const RankRows& rank, const JobStep& step);

/// What is typical of a job, against which one collective is held.
class JobTypes {
 public:
  JobTypes(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched);
  /// Nanoseconds from the arrival of the last peer, the median of collectives that do the same; -1: too few.
  std::int64_t usual_transfer_ns(const RankRows& rank, std::int32_t row) const;
  /// A message so small that most of its time is latency: it moves bytes at less than half of the best rate.
  bool mostly_latency(const RankRows& rank, std::int32_t row) const;
  /// What begins within so much of its launch was launched late, not held back by the device.
  std::int64_t launch_lag_ns(std::size_t rank) const { return lag_[rank]; }

 private:
  static double rate(const RankRows& rank, std::int32_t row);  // bytes a nanosecond; 0: not known

  double best_rate_ = 0;
  std::vector<std::int64_t> lag_;                                          // by rank
  std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> usual_;  // key, median; sorted
};

/// The stalls of a rank's step: disjoint, sorted, and exactly the window without its computation. `op`: a row of the
/// device, the collective or copy that ran, or what began at last; `late_rank`: a place among the ranks.
///
/// [Note: causes without a schedule]
/// A stretch without computation is walked from its end. The collective that ended last in it is what computation
/// waited for, back to its begin; then the one before. Of a collective first comes the wait for its last peer. What
/// remains is the transfer: what it took beyond its like is slow_transfer; then it is asked when it could have begun.
/// Begun right after its launch, the host was late: blocked by an event (a limit), by the device (a sync), or busy.
/// Begun at the end of a collective of another kind on its stream or communicator, it is that one's fault, as long as
/// that one held it up; but a gather that nothing launched later overtook needed not have stood there: prefetched it
/// would have been before, and where others are, this one was refused (a limit). A gather that began at neither, though
/// its stream was free, waited for the event of a computation: in backward a limit, in forward a late prefetch. First
/// gathers and last reductions have nothing beside them. The rest is the link's. Time without a collective is a copy's,
/// the loader's, or the host's, by what began after it.
std::vector<metrics::Stall> find_job_stalls(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                                      const JobTypes& types, int rank, std::size_t step);

}  // namespace fsdpbench::foreign
