#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "account/critical_path.h"
#include "account/find_stalls.h"
#include "account/step_breakdown.h"
#include "base/intervals.h"
#include "foreign/matched_collectives.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// One rank's step in sets of time: computation, communication and copies by the kind of the rows (Activity), clipped
/// to the step. As account::intervals_of(); the same identities hold (account::break_down).
account::StepIntervals intervals_of(const RankRows& rank, const JobStep& step);

/// Typical times of a job, with which a collective is compared.
class JobTypes {
 public:
  JobTypes(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched);
  /// Nanoseconds from the arrival of the last peer, the median of collectives that do the same; -1: too few.
  std::int64_t usual_transfer_ns(const RankRows& rank, std::int32_t row) const;
  /// A message so small that most of its time is latency: it moves bytes at less than half of the best rate.
  /// `transfer_ns`: from the arrival of its last peer.
  bool mostly_latency(const RankRows& rank, std::int32_t row, std::int64_t transfer_ns) const;
  /// Most time from launch to begin of a row that was launched late, not held back by the device.
  std::int64_t launch_lag_ns(std::size_t rank) const { return lag_[rank]; }

 private:
  static double rate(const RankRows& rank, std::int32_t row,
                     std::int64_t transfer_ns);  // bytes a nanosecond; 0: not known

  double best_rate_ = 0;
  std::vector<std::int64_t> lag_;                                          // by rank
  std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> usual_;  // key, median; sorted
};

/// The stalls of a rank's step: disjoint, sorted, and exactly the window without its computation. `op`: a row of the
/// device, the collective or copy that ran, or what began at last; `late_rank`: a place among the ranks.
///
/// [Note: edges without a schedule]
/// The walk is that of our own records (account/find_stalls.h); what differs is where its edges come from. A trace has
/// no waits and no reasons, so they are inferred. What computes waited for what ended last on another stream since its
/// own was free. A collective stands behind the one that ended last on its stream or its communicator. One that was
/// launched early and began when something ended waited for that one's event: reductions for their data; a gather,
/// which depends on no computation but began when one ended, in backward for memory (a limit), in forward because
/// nobody let it begin earlier. What begins right after its launch was launched late: the host was blocked by an event
/// (a limit), by the device (a sync), or was busy; if it was neither, a gather was launched on demand. A prefetch would
/// have stood before the reduction that a gather in backward stands behind. Time in which a loader runs and nothing
/// else is the loader's. A gap is the host's only until what ends it had been launched, also between two steps; what
/// it waited for after that, if no row of the device tells, is unknown.
std::vector<account::Stall> find_job_stalls(const JobTrace& job, const Recognition& found,
                                            const MatchedCollectives& matched, const JobTypes& types, int rank,
                                            std::size_t step);

/// The critical path of step `step`, which all ranks must have; ops are rows of the device, times those of the first
/// rank's clock. Edges are those of find_job_stalls(). The host waited for what ended last before a wait of it did;
/// where it computes itself, for its own last op. What a row without a known launch waited for, beyond rows of the
/// device, is unknown.
account::CriticalPath find_job_path(const JobTrace& job, const Recognition& found, const MatchedCollectives& matched,
                                    const JobTypes& types, std::size_t step);

}  // namespace fsdpbench::foreign
