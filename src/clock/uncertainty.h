#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/enum_table.h"
#include "clock/op_times.h"

namespace fsdpbench::clock {

/// How far an op's time is from what was measured.
enum class Reach : std::uint8_t {
  measured,      ///< an op of its amount was
  interpolated,  ///< its amount lies between
  extrapolated,  ///< it lies outside, or another kind, machine or number of ranks stands for it
};
std::string_view to_string(Reach reach);
/// By Reach: ops with work of a step.
using ReachCounts = EnumTable<Reach, int>;
/// A step is known no better than its least known op.
Reach least_sure(const ReachCounts& ops);

/// How wrong predicted op times may be: other times that are as likely as they, as far as is known. Ops of one source
/// (a kind of op and its size) err together, sources for themselves.
struct Uncertainty {
  /// So many that the least and the greatest of what follows from them are the bounds of a 95 % interval: of n values
  /// the k-th lies in the mean at the quantile k / (n + 1).
  static constexpr int kDraws = 39;

  ReachCounts reach{};
  std::vector<std::vector<int>> source;     ///< by step (as OpTimes::steps) and op: into `ratios`; -1: as given
  std::vector<std::vector<double>> ratios;  ///< by source and draw: what its ops take over what is predicted
  std::vector<HostCosts> host;              ///< by draw: what it adds to the host's costs; empty: nothing
  /// 95 of 100 steps lie within so much of what was walked, as a share of it, if all op times are right: what no op's
  /// time is to blame for. Of exposed communication as a share of the step, too.
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

/// What the next of such values stays below with probability `p` in (0, 1): the value of rank p (n + 1) of n, straight
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

}  // namespace fsdpbench::clock
