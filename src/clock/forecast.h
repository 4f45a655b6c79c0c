#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "clock/op_times.h"
#include "schedule/training.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// What a forecast can leave out of a step.
enum class Part : std::uint8_t {
  host,          ///< issuing an op takes no time, nor does the start of a lane that was idle
  lane_lags,     ///< lanes begin at once, but for waits for a core
  core_waits,    ///< lanes wait for no core
  copies,        ///< copies on the device take no time
  pcie,          ///< copies between device and host take no time
  host_update,   ///< what the host computes takes no time
  step_ends,     ///< transfers at the ends of the step, which nothing can hide, take no time
  link_sharing,  ///< transfers do not share links
  tensor_group,  ///< exchanges of ranks that split layers take no time
  expert_rows,   ///< exchanges of ranks that split experts take no time
};

/// What is to be different from what is known of a machine or of a run, beside the schedule.
struct Changes {
  double link_scale = 1;               ///< bytes flow so many times as fast; what a hop takes stays
  double hop_ns = 0;                   ///< a hop takes so much longer
  double compute_scale = 1;            ///< modules compute so many times as fast
  double issue_ns = 0;                 ///< the host takes so much longer to issue an op
  std::vector<double> compute_factor;  ///< by rank: what its compute lane takes over what it took; empty: 1
  std::vector<double> link_was;        ///< by rank: factors of its link in the run; empty: 1
  std::vector<double> link_is;         ///< and now
  std::vector<double> op_factor;       ///< by op of the steady schedule: what it takes over what it took; empty: 1
  int straggler = -1;                  ///< this rank computes as the median of the others; -1: none
  int late_rank = -1;                  ///< this rank takes what the others take, whatever it is late at; -1: none
  int slow_link = -1;                  ///< this rank's link takes what the others' take; -1: none
  std::set<Part> without;              ///< parts of a step that are left out
  int draw = -1;  ///< op times as likely as the known ones: one of Uncertainty::kDraws; -1: the known ones

  bool operator==(const Changes&) const = default;
};

/// A step of the steady state on the computed clock.
struct Forecast {
  std::vector<double> lengths_ns;        ///< by rank; one for all if no two ranks may differ
  std::vector<trace::RankTrace> traces;  ///< of this step, of the ranks that were to be recorded
  double slowest_ns() const { return *std::ranges::max_element(lengths_ns); }
};

/// Says what a step of a training would take where it is to run: at given rates, on a cluster, by a calibration, or by
/// what the ops of a finished run took. May be asked from several threads at once; the same question always has the
/// same answer.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Throws ConfigError if nothing tells what an op of `training` takes, and std::logic_error for a change that this
  /// clock cannot make.
  virtual Forecast forecast(const schedule::Training& training, const Changes& changes = {}) const = 0;
};

/// Which step stands for the steady state.
enum class SteadyStep : std::uint8_t {
  first,     ///< the first one with the schedule that repeats; where ranks differ the next one, since a step begins
             ///< with ranks as far apart as the one before it left them
  repeated,  ///< the first that is as long as the one before it on every rank; the eighth at the latest
};

/// The steady step of a training whose ops take `times`. Ranks 0 to `recorded` - 1 are recorded.
Forecast forecast(const schedule::Training& training, const OpTimes& times, SteadyStep which = SteadyStep::first,
                  int recorded = 0);

/// Told of each step of a run after it: which one it was, and what it took by rank (one for all if no two ranks may
/// differ). The run goes on if it says so.
using AfterStep = std::function<bool(std::size_t step, const std::vector<double>& lengths_ns)>;

/// The first `steps` steps of a run of a training whose ops take `times`. From step `first` on they are appended to
/// `traces`, of the ranks that these name.
void forecast_run(const schedule::Training& training, const OpTimes& times, std::size_t steps, std::size_t first,
                  std::span<trace::RankTrace> traces, const AfterStep& after = {});

}  // namespace fsdpbench::clock
