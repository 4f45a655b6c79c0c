#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/op.h"
#include "trace/record.h"

namespace fsdpbench::account {

/// One measured step as all ranks recorded it. A view: lives no longer than the schedules and traces it was made of.
class StepRecords {
 public:
  StepRecords(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces, std::size_t index,
              std::size_t first_record, std::int64_t slowest_ns);

  std::int32_t number() const { return number_; }  ///< among all steps of the run, warm-up counted
  const schedule::Schedule& schedule() const { return *schedule_; }
  int event_count() const { return event_count_; }
  /// Ranks that are in view; functions take their places among these.
  int ranks() const { return static_cast<int>(traces_.size()); }
  /// The rank of the run that is in this place: the same number, unless only some ranks are in view.
  int rank_at(int place) const { return traces_[place].rank; }
  /// Records of one rank: as many as the schedule has ops, in its order.
  std::span<const trace::Record> of(int rank) const;
  const trace::StepWindow& window(int rank) const { return traces_[rank].steps[index_]; }
  std::int64_t length_ns(int rank) const { return window(rank).end_ns - window(rank).begin_ns; }
  int slowest_rank() const;  ///< of those in view, the first of equals
  /// The longest step of all ranks of the run, in view or not.
  std::int64_t slowest_ns() const { return slowest_ns_ > 0 ? slowest_ns_ : length_ns(slowest_rank()); }

 private:
  std::span<const trace::RankTrace> traces_;
  const schedule::Schedule* schedule_;
  int event_count_;
  std::int32_t number_;
  std::size_t index_;        // among the measured steps
  std::size_t first_;        // record
  std::int64_t slowest_ns_;  // 0: of those in view
};

/// The measured steps of a run, cut once. A view, as StepRecords.
class RunView {
 public:
  /// `traces`: of all ranks; or of some, and then `slowest_ns` is the length of each measured step on the slowest rank
  /// of all. Throws a check_failed Error if the ranks have not recorded the same steps, or a step has not one record
  /// for each op of its schedule.
  RunView(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
          std::span<const std::int64_t> slowest_ns = {});

  const schedule::Schedules& schedules() const { return *schedules_; }
  std::span<const trace::RankTrace> traces() const { return traces_; }
  const std::vector<StepRecords>& steps() const { return steps_; }
  int ranks() const { return ranks_; }  ///< in view

 private:
  const schedule::Schedules* schedules_;
  std::span<const trace::RankTrace> traces_;
  std::vector<StepRecords> steps_;
  int ranks_;
};

/// The steps that speak for a run where one number is wanted for a part of it: the middle third by the length of their
/// slowest rank, so the median step is among them. Nanoseconds summed over these steps and over all ranks, times
/// `ms_per_ns`, are milliseconds of the median step: what partitions every rank's step partitions the median step.
///
/// [Note: why all ranks]
/// Ranks wait for each other in every step, so their steps take equally long but for jitter, and which one is the
/// slowest is luck. Its parts alone would be a lottery: a late rank never waits for itself, so a run that is held up by
/// one would look busy or stalled as the die falls. Over all ranks, what the others wait shows.
struct MiddleSteps {
  std::vector<std::size_t> indices;  ///< into RunView::steps(), in order of time
  std::size_t median = 0;            ///< the one of median length; the shorter of two
  double median_ms = 0;              ///< the mean of the two middle ones for an even count
  double ms_per_ns = 0;
};
/// At least one measured step.
MiddleSteps middle_steps(const RunView& run);

}  // namespace fsdpbench::account
