#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "config/calibration.h"
#include "replay/line_fit.h"
#include "replay/measured_times.h"
#include "replay/op_times.h"
#include "replay/op_work.h"

namespace fsdpbench::replay {

/// Gathers what ops took in finished runs of one machine, and draws a line through each kind of op.
class Calibrator {
 public:
  /// Medians over steps and ranks of each op of the steady schedule; of a collective what it would have taken alone,
  /// from the arrival of its last peer. `host`: measured_host() of the same run.
  void add(const MeasuredTimes& run, const HostCosts& host);
  /// At least one run. `machine` and `revision` are left to the caller.
  config::Calibration result() const;

 private:
  /// By kind, unit of its amount, and ranks of its group.
  std::map<std::tuple<schedule::OpKind, OpWork::Unit, int>, std::vector<LineSample>> samples_;
  std::vector<HostCosts> hosts_;
};

/// How far an op's time is from what was measured.
enum class Reach : std::uint8_t {
  measured,      ///< an op of its amount was
  interpolated,  ///< its amount lies between
  extrapolated,  ///< it lies outside, or another kind, or another number of ranks, stands for it
};
inline constexpr std::size_t kReachCount = 3;
std::string_view to_string(Reach reach);

struct CalibratedTimes {
  OpTimes times;
  std::array<int, kReachCount> reach{};  ///< ops with work of the steady schedule
  double spread_pct = 0;                 ///< of the lines, weighted by time: half of the ops lie within it
};

/// What the ops of a training take by a calibration. A collective of as many ranks as were never measured is taken as
/// one of the nearest number. Throws ConfigError if a kind of op with work was never measured, in any group.
CalibratedTimes calibrated_times(const config::Calibration& calibration, const Training& training);

}  // namespace fsdpbench::replay
