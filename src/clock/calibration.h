#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "clock/compute_cost.h"
#include "clock/forecast.h"
#include "clock/measured_host.h"
#include "clock/measured_times.h"
#include "clock/op_times.h"
#include "config/calibration.h"

namespace fsdpbench::clock {

/// Gathers what ops took in finished runs of one machine, and draws a line through each kind of op.
class Calibrator {
 public:
  /// Means over ranks and the middle third of the steps of each op of the steady schedule; of a collective what it
  /// would have taken alone, from the arrival of its last peer. If an op is interrupted now and then, its median
  /// has nothing of that, and the median step, in which there are many, has: means add up to it, medians do not.
  /// `host`: measured_host() of the same run, CoreWaits::averaged.
  void add(const MeasuredTimes& run, const HostCosts& host);
  /// At least one run. `machine`, `revision` and `misses` are left to the caller: the last with what a walk by the
  /// calibration says of its own runs (`misses` empty: that walks are right if their ops are). The same runs give the
  /// same calibration.
  ///
  /// [Note: refits]
  /// How sure a line is, is found by drawing other measurements that might have been made: each op's median is put
  /// where the line says, times what an op of another run was off by (runs are drawn with replacement, then ops in
  /// them, because what disturbs one run disturbs all its ops), plus the error of a median of so many steps.
  config::Calibration result() const;

 private:
  struct Sample {
    LineSample line;
    double error_ns = 0;  ///< standard error of its median
    std::size_t run = 0;
  };
  struct LineSamples {
    std::vector<Sample> samples;
    std::vector<double> residuals;  ///< of single times, over the mean of their op on their rank
  };
  static std::vector<config::CalibrationLine::Refit> refits(const LineFit& fit, const std::vector<Sample>& samples);

  /// By kind, unit of its amount, and ranks of its group.
  std::map<std::tuple<schedule::OpKind, OpWork::Unit, int>, LineSamples> seen_;
  std::vector<HostCosts> hosts_;
};

struct CalibratedTimes {
  OpTimes times;
  Uncertainty uncertainty;
  double spread_pct = 0;  ///< of the lines, weighted by time: half of the ops lie within it
  double crowded = 1;     ///< crowding()
};

/// Ranks per core of a training of `ranks` on those cores, over those measured, less than 1 if it has
/// fewer; 1 where neither has more ranks than cores, and where ranks compute on none.
double crowding(const config::Calibration& calibration, int ranks);

/// Op times of a training by a calibration. A collective of as many ranks as were never measured is taken as
/// one of the nearest number; how far the lines of two numbers are apart is then part of its uncertainty. Ranks that
/// have to share cores more or less than those measured may take as many times as long: that is part of it, too. Throws
/// ConfigError if a kind of op with work was never measured, in any group.
CalibratedTimes calibrated_times(const config::Calibration& calibration, const schedule::Training& training);

}  // namespace fsdpbench::clock
