#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "account/run_view.h"
#include "account/typical_step.h"
#include "clock/machine.h"
#include "runs/finished_run.h"
#include "runs/simulated_machine.h"

namespace fsdpbench::app {

/// [Note: how far an answer from a finished run can be trusted]
/// The ratio of a changed run's measurement to this run's differs from what replays of this run's op times say for
/// three reasons, which are independent of each other:
/// - the replay does not even hit the run itself. What it misses is in no op's time, and the changed run may have more
///   of it or nothing;
/// - runs differ. What was computed on this machine's processors leaves it unknown: eight runs one after the other on
///   two cores differed by a standard deviation of 5 % while nothing competed with them, and by 20 % while other
///   programs did, whereas the halves of each run's steps often differed by less than 2 %. Nothing within a run shows
///   what its own minute and its own memory pages did to all of its steps.
///   Where computation is emulated, the model says what a step takes, so the run knows what the machine added to it
///   (account::Fidelity): another run may have none of that, or twice as much. Its halves differ by its A/A noise
///   (account/statistics.h), and two runs by both their noises, but never by less than kLeastBetweenRuns, because
///   halves of one run have the same threads on the same cores;
/// - ops that were never measured (clock::WhatIfTimes::doubt_ns).
/// All are half widths of 95 % intervals, as shares of a step.
struct RunDoubt {
  double replay = 0;                   ///< how far the replay is from the run
  std::optional<double> between_runs;  ///< by how much two runs of one configuration differ; absent: not known
  double reach = 0;                    ///< by how much ops that were never measured may lengthen or shorten a step
  /// By how much a step may be longer, or shorter if below 0, because computation runs beside other collectives than in
  /// the run: no half width.
  double beside = 0;
  /// The half widths together; absent if one of them is.
  std::optional<double> whole() const;
};
inline constexpr double kLeastBetweenRuns = 0.005;

/// Why there is no interval, and how to get one: for answers whose between_runs is absent.
inline constexpr std::string_view kNoInterval =
    "no interval: one run whose computation is real does not show by how much runs on shared processors differ; "
    "compare "
    "measures both in turns";

/// Without the reach, which is the question's. `replayed_ms`: the step that a replay of the unchanged `run` says.
/// Simulated steps that are all alike differ from no other run of theirs.
RunDoubt doubt_of(const FinishedRun& run, double replayed_ms);

/// RunDoubt::beside of a step of `changed`, made with `changes`, that takes `change` more than the run's, as a part of
/// that: on GPUs what clock::most_slowed_computation() would do. Elsewhere 0.
double beside_collectives(const FinishedRun& run, const schedule::Training& changed, const clock::Changes& changes,
                          double change);

/// Whether links of one speed join all ranks, as far as the run tells: modelled ones, those of one host, or, where no
/// host is named, as in traces of other programs, those of no more ranks than a usual node has GPUs.
bool one_fabric(const FinishedRun& run);

/// Why an answer from the run holds for a busy machine only, a sentence without full stop; empty where other programs
/// did not disturb it.
std::string why_disturbed(const FinishedRun& run);

/// That the machine of a simulated run no longer says what the run took, a sentence without full stop; empty if it
/// does.
std::string changed_since(const FinishedRun& run, const SimulatedMachine& machine);

/// The machine that a finished run was measured on: ops take what they took in its typical step, and ops of other
/// schedules what follows from these (clock/what_if_times.h). What nothing measured tells is refused with ConfigError.
class MeasuredMachine final : public clock::Machine {
 public:
  /// `run` must live on.
  explicit MeasuredMachine(const FinishedRun& run);

  std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const override;
  clock::Forecast forecast(const schedule::Training& training, const clock::Changes& changes = {}) const override;
  clock::LeastTimes least_times(const schedule::Training& training) const override;
  /// Steps differed, so that another choice of them would have given other times; a draw is such a choice.
  bool in_doubt() const override { return !typical_.repeats(); }
  std::optional<double> doubt(const schedule::Training& training, double gain) const override;

 private:
  const FinishedRun& run_;
  account::RunView view_;
  account::TypicalStep typical_;
  RunDoubt doubt_;
  ModelSizes sizes_;
};

}  // namespace fsdpbench::app
