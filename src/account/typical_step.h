#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "account/find_stalls.h"
#include "account/late_ranks.h"
#include "account/run_view.h"
#include "account/step_view.h"
#include "clock/contention.h"
#include "clock/forecast.h"
#include "clock/measured_host.h"
#include "clock/measured_times.h"
#include "plan/plan.h"
#include "schedule/training.h"

namespace fsdpbench::account {

/// A stall of a measured step: what of it repeats, and what does not.
struct ToldStall {
  Stall stall;
  bool jitter = false;  ///< beyond the typical step: it has no cause, nor a late rank
};
/// The cause, or "jitter".
std::string_view name_of(const ToldStall& told);

/// Time for which each cause keeps each computation waiting in the typical step.
class TypicalStalls {
 public:
  /// Stalls of the one step in `typical`; the other parameters are those of find_stalls().
  TypicalStalls(const StepRecords& typical, const plan::Groups& groups, const std::optional<LinkModel>& link,
                bool prefetches_backward, const EvenRows& even_rows = {});

  /// Splits what find_stalls() found for the rank in place `rank`: of the stretches between two computations each
  /// cause has as much as it has before the same computation in the typical step, from the first one on. What is
  /// left repeats as far as others of its causes are left there, and beyond them it is jitter. The parts cover the same
  /// time, in order. `rank`: one stands for all if the typical step has one rank only.
  std::vector<ToldStall> tell(const StepRecords& step, int rank, const std::vector<Stall>& stalls) const;

 private:
  using Before = std::vector<std::pair<std::int64_t, OpKey>>;  // by begin
  static Before computations(const StepRecords& step, int rank);
  /// The computation that a stall ends with; none after the last one.
  static std::optional<OpKey> ended_by(const Before& computations, const Stall& stall);

  std::vector<std::map<std::optional<OpKey>, std::array<std::int64_t, kCauseCount>>> ns_;  // by place
};

/// Why the ranks in view cannot have a typical step, a sentence without its full stop: an op with work that was never
/// timed, or waits for peers that are not in view, together longer than `noise_ms` a step. Empty if they can.
std::string why_no_typical_step(const RunView& run, const plan::Groups& groups, double noise_ms);

/// A rank that takes longer than the others, and at what.
struct LateRank {
  int rank = 0;
  std::optional<Lateness> work;   ///< its own ops: computation and copies
  std::optional<Lateness> issue;  ///< its host
  std::optional<Lateness> link;   ///< its own link, from the arrival of the last peer; its arrivals count for nothing.
                                  ///< Where nobody knows when its link was done: its transfers
};

/// Repeating part of a run: its schedule replayed with the median time of each op.
///
/// [Note: what is typical]
/// An op takes the median over the measured steps of what it took, a transfer from the arrival of its last peer, the
/// host's issue likewise; lanes begin as late as the median of what makes them start, and as much later as all ops of a
/// lane do, waits for a core (which are told apart) among that. Waiting for others is in none of these: it comes out of
/// the replay. Ranks that do not differ for certain (late_ranks.h) have their medians in common, so that luck makes no
/// rank late; a late rank keeps its own. Where all measured steps took the same to the nanosecond nothing is luck, and
/// every rank keeps its own.
///
/// [Note: some ranks of many]
/// A simulation of many ranks records only some. If these wait for no rank that was not recorded and do not differ
/// among themselves, one rank with what they have in common stands for all and is replayed alone. Otherwise the other
/// ranks would have to be known, and there is no typical step.
class TypicalStep final : public clock::Clock {
 public:
  /// `run`: a run of `training` of which why_no_typical_step() says nothing; at least one measured step, transfers with
  /// the arrival of their last peer. Both must live on. `noise_ms`: of a step, up to which ranks are not told apart.
  /// `one_fabric`, `slowdown`: as MeasuredTimes asks; with `slowdown` its forecasts are of ops that others beside them
  /// slow down so (clock::add_contention).
  TypicalStep(const RunView& run, const schedule::Training& training, double noise_ms, bool one_fabric = true,
              const clock::SlowdownOf& slowdown = {});
  TypicalStep(const TypicalStep&) = delete;
  TypicalStep& operator=(const TypicalStep&) = delete;

  /// Whose typical step it is, with the schedule that repeats alone.
  const schedule::Training& training() const { return training_; }
  /// Why it is not the typical step of ranks that are not in view, a sentence without its full stop; empty if it is.
  std::string why_not_of_all() const;
  /// Measured steps that had that schedule: the typical one is made of them.
  std::size_t steps() const { return steps_.size(); }
  /// Whether they took the same to the nanosecond.
  bool repeats() const { return repeats_; }
  const std::vector<LateRank>& late_ranks() const { return late_; }
  /// Whether the records say when each rank's own link was done.
  bool knows_links() const;

  /// Times of the ops in the typical step.
  const clock::MeasuredTimes& times() const { return *times_; }

  /// The typical step itself, all ranks recorded; one, if it stands for all.
  clock::Forecast forecast() const;
  /// The steady step of a training of the same ranks whose schedules are one steady one: what its ops take follows from
  /// what they take in the typical step; for `changes.draw`, in one that is as likely: typical of as many of the
  /// measured steps, drawn with replacement.
  clock::Forecast forecast(const schedule::Training& other, const clock::Changes& changes = {}) const override;

 private:
  void find_late(double noise_ms);
  clock::MeasuredTimes times_of(const std::vector<std::size_t>& steps) const;
  const clock::MeasuredTimes& drawn(int draw) const;
  clock::OpTimes op_times(const schedule::Training& other, const clock::Changes& changes) const;
  using LaneTimes = std::vector<std::array<double, kLaneCount>>;  // by rank
  LaneTimes typical_of(clock::LaneStarts::ByLane clock::LaneStarts::*part, double noise_ms) const;
  void mend_link(int rank, const schedule::Training& other, clock::OpTimes& times) const;
  bool is_own(const schedule::Training& other) const { return &other == &training_; }

  bool one_for_all_;
  clock::SlowdownOf slowdown_;
  schedule::Training training_;
  clock::MeasuredTimes measured_;
  std::vector<std::size_t> steps_;  // of measured_
  bool repeats_ = true;
  std::vector<bool> own_work_, own_issue_, own_link_;  // by rank
  std::vector<LateRank> late_;
  clock::HostCosts host_;
  std::vector<clock::LaneStarts> starts_;  // as measured
  LaneTimes typical_lag_ns_, typical_core_wait_ns_;
  std::vector<clock::MeasuredTimes::Table> link_ns_;  // of own links, by measured step
  clock::MeasuredTimes::Table typical_link_ns_;       // kNone: not known
  std::optional<clock::MeasuredTimes> times_;
  mutable std::mutex drawing_;
  mutable std::map<int, clock::MeasuredTimes> drawn_;  // by draw, those that were asked for
};

}  // namespace fsdpbench::account
