#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "account/run_view.h"
#include "base/intervals.h"
#include "base/lane_pool.h"
#include "config/run_config.h"
#include "plan/communication.h"
#include "schedule/op.h"

namespace fsdpbench::account {

/// Class that an op's time counts in.
enum class OpClass : std::uint8_t {
  computation,    ///< forward, backward, recomputation, gradient sums, norm and optimizer
  communication,  ///< collectives
  copy,           ///< casts, copy-in, copy-out, batch upload, and between the memories of device and host
  host_update,    ///< of offloaded state, on the host's processors: a device that only waits for it is idle
  none,           ///< host waits and ops without work
};
OpClass classify(const schedule::Op& op);

/// Times in which one rank computed, communicated and did neither in one step; all lanes together. Computation, exposed
/// communication, exposed copies and idle are disjoint and cover the window.
struct StepIntervals {
  IntervalSet window;
  IntervalSet computation;
  IntervalSet communication;
  /// Nothing computes while a collective of the rank's own runs; a copy is no computation, on whatever lane.
  IntervalSet exposed_communication;
  IntervalSet exposed_copies;  ///< copies beside neither
  IntervalSet idle;
};

/// Intervals of the ops that ran in a step, cut to the step; in no order, and intervals may overlap.
struct StepRuns {
  std::vector<Interval> computation, communication, copies;
};
StepIntervals intervals_of(const Interval& window, StepRuns runs);

/// Throws a check_failed Error for a record outside its step.
StepIntervals intervals_of(const StepRecords& step, int rank);

/// Breakdown of time, in nanoseconds: lengths of the sets of StepIntervals, of one step or summed over several. To the
/// nanosecond, computation + exposed_communication + exposed_copy + idle = step
/// and overlap = computation + communication - length of their union.
struct StepBreakdown {
  std::int64_t step = 0;
  std::int64_t computation = 0;
  std::int64_t communication = 0;
  std::int64_t overlap = 0;
  std::int64_t exposed_communication = 0;
  std::int64_t exposed_copy = 0;
  std::int64_t idle = 0;

  std::int64_t stalled() const { return exposed_communication + exposed_copy + idle; }  ///< nothing computed
  StepBreakdown& operator+=(const StepBreakdown& other);
};

/// Breakdown of the part of a step that is in `span`.
StepBreakdown break_down(const StepIntervals& step, const IntervalSet& span);
/// The whole step of one rank. Throws a check_failed Error if an identity does not hold: a record outside its step, or
/// a sum that is off by a nanosecond.
StepBreakdown break_down(const StepRecords& step, int rank);

/// Bytes counted on the wire, by rank, equal those of the schedule; both of one step. A ring of an uneven message
/// rounds each all-reduce down, so of those up to 4 bytes a unit and microbatch may be missing. Throws a check_failed
/// Error.
void check_wire_bytes(const plan::CommunicationVolume& expected, std::span<const plan::CommunicationVolume> counted,
                      const plan::Plan& plan, const config::RunConfig& config);

/// No rank's pool ever held more than the schedule's own walk says. (A run shorter than the walk may not have reached
/// the peak.) Throws a check_failed Error.
void check_memory(const PoolStatistics& expected, std::span<const PoolStatistics> measured);

}  // namespace fsdpbench::account
