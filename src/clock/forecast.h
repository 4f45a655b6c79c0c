#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "clock/op_times.h"
#include "schedule/training.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// Distance of an op's time from what was measured.
enum class Reach : std::uint8_t {
  measured,      ///< an op of its amount was
  interpolated,  ///< its amount lies between
  extrapolated,  ///< it lies outside, or another kind, machine or number of ranks stands for it
};
std::string_view to_string(Reach reach);
/// Numbers of a step's ops with work, by Reach.
using ReachCounts = EnumTable<Reach, int>;
/// A step is known no better than its least known op.
Reach least_sure(const ReachCounts& ops);

/// Uncertainty of predicted op times: other times that are as likely as they, as far as is known. Ops of one source
/// (a kind of op and its size) err together, sources for themselves.
struct Uncertainty {
  /// So many that the least and the greatest of what follows from them are the bounds of a 95 % interval: of n values
  /// the k-th lies in the mean at the quantile k / (n + 1).
  static constexpr int kDraws = 39;

  ReachCounts reach{};
  std::vector<std::vector<int>> source;     ///< by step (as OpTimes::steps) and op: into `ratios`; -1: as given
  std::vector<std::vector<double>> ratios;  ///< by source and draw: what its ops take over what is predicted
  std::vector<HostCosts> host;              ///< by draw: what it adds to the host's costs; empty: nothing
  std::vector<double> own_issue;            ///< by draw: what OpTimes::own_issue is over what is predicted; empty: 1
  /// 95 of 100 steps lie within so much of what was walked, as a share of it, if all op times are right: what no op's
  /// time is to blame for. That of exposed communication is a share of the step, too.
  double step_miss = 0, exposed_miss = 0;
  bool leaves_ranks_out = false;  ///< a number of ranks was never measured, and nothing tells what that changes
};

struct Bounds {
  double low = 0, high = 0;
  double width() const { return high - low; }
};

/// The 95 % interval around `predicted`: as far as the least and the greatest of `draws`, simulated with drawn errors,
/// are from `walked`, simulated without; and independently of that `miss` to both sides. All in one unit; not below 0.
Bounds interval_around(double predicted, double walked, const std::vector<double>& draws, double miss);

/// Bound on the next of such values with probability `p` in (0, 1): the value of rank p (n + 1) of n, straight
/// in logarithms between. Values of one source err together, so that `sources` of them count as independent: where they
/// are too few for p, which lies before the first or behind the last of p (sources + 1) ranks, it is the further of
/// that value (beyond the n ranks the outermost) and Student's bound for the next of values that scatter in their
/// logarithms, with sources - 1 degrees of freedom. `ascending`: at least one, above 0. `sources`: in [1, n]; 1 gives
/// no such bound.
double quantile_of_next(const std::vector<double>& ascending, int sources, double p);

/// Half the width of a 95 % interval of the next of such values, whose mean is known to be 0: their root mean square
/// times Student's quantile for as many. At least one.
double next_within(const std::vector<double>& values);

/// The predicted `times` with the errors of draw `draw` in [0, kDraws).
OpTimes drawn(OpTimes times, const Uncertainty& uncertainty, int draw);

/// Parts of a step that a forecast can leave out.
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

/// Changes to what is known of a machine or of a run, beside the schedule.
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

/// Step that stands for the steady state.
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
