#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "clock/op_times.h"
#include "plan/groups.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// A run on a computed clock: the same schedules that an executor issues, walked for all ranks with given times.
/// Nothing sleeps and nothing is random: the same arguments give the same nanoseconds.
///
/// An op begins when its lane is free, the host has issued it, what it waits for is over, and, for a collective, its
/// communicator is free; its transfer when the last rank of its group has come so far. Lanes and communicators are
/// first come, first served in the order of issue. A step of a rank ends when all its lanes are idle; then the rank's
/// host begins with the next one, whatever the others do.
class Replay {
 public:
  virtual ~Replay() = default;

  /// Walks the next step of all ranks. `recorded`: the ranks (`rank` says which) whose step is appended to their
  /// records and windows, as an executor would have written them.
  virtual void step(std::span<trace::RankTrace> recorded) = 0;

  /// Times of the last step, in whole nanoseconds from the beginning of the run. By rank; one entry for all if no two
  /// ranks may differ.
  struct StepTimes {
    std::vector<double> begin_ns;
    std::vector<double> end_ns;
  };
  virtual const StepTimes& last_step() const = 0;
};

/// The arguments must outlive the replay. Chooses the walk: op by op where no two transfers can meet on a link (or
/// times are given), else in the order of time, in fair shares (base/fluid_link.h). Both give the same where both
/// apply.
std::unique_ptr<Replay> make_replay(const schedule::Schedules& schedules, const plan::Groups& groups,
                                    const OpTimes& times);

/// Whether two communicators of a rank may use one of its links at once.
bool links_are_shared(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times);

/// How long each op of a schedule takes on one rank, in nanoseconds, by op index. A collective's duration counts from
/// the moment its last peer has arrived.
using OpDurations = std::vector<std::int64_t>;

/// The least time in which the schedule can run with these durations: every op starts as soon as its lane, its waits,
/// the host's waits and, for a collective, its communicator and its peers allow; issuing costs nothing. A longest
/// path, computed op by op in (max, +). `by_rank`: one entry a rank of `groups`.
std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            std::vector<OpDurations> by_rank);

}  // namespace fsdpbench::clock
