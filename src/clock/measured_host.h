#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/lane.h"
#include "clock/op_times.h"
#include "schedule/op.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// A measured time of something that takes `fixed` times a constant (hops of a ring; 1 for a kernel) and `amount` times
/// another (bytes).
struct LineSample {
  double fixed = 1;
  double amount = 0;
  double ns = 0;
  double spread_ns = 0;  ///< by how much its repetitions differ
};

/// Time = fixed_ns * fixed + ns_per_amount * amount.
struct LineFit {
  double fixed_ns = 0;
  double ns_per_amount = 0;
  int samples = 0;
  double within = 0;  ///< the next such time lies within so much of the line, as a share of it, 95 times of 100

  double ns(double fixed, double amount) const { return fixed_ns * fixed + ns_per_amount * amount; }
};

/// The least squares of errors relative to the line, so that it goes through the middle of what scatters; no constant
/// below 0. A fixed part that the samples do not show is none: where
/// a line through 0 meets each of them within its spread or a nanosecond, and where all have the same size. `fixed_ns`:
/// known beforehand; absent: fitted too. `samples`: may be empty, and then all is 0.
LineFit fit_line(std::span<const LineSample> samples, std::optional<double> fixed_ns = std::nullopt);

/// Whether what lanes wait for a core (trace::Record::core_wait_ns) counts as time that their starts take. Most starts
/// wait for none and a few wait long, so the median of all has next to nothing of it, and a step has all of it:
/// `averaged` is the median without them, plus their mean.
enum class CoreWaits { counted, left_out, averaged };

/// Times of the host and op starts in a finished run: the medians of all issues, of all starts on a lane that
/// had been idle, of all starts on one that had been busy, and of all ops that began because another lane's op had
/// ended. `delays` were injected and are taken out. `traces`: as recorded, the same steps on all.
HostCosts measured_host(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                        const Delays& delays, CoreWaits core_waits = CoreWaits::counted);

/// Other delays of lanes, by lane: one for each op that began neither for its communicator nor behind an op
/// without work, in no order that means anything. What is in all of a lane's ops holds that lane up.
struct LaneStarts {
  using ByLane = std::array<std::vector<double>, kLaneCount>;
  ByLane lag_ns;        ///< it began so much later than the costs say; waits for a core left out
  ByLane core_wait_ns;  ///< it had all it needed but a core for so long
};
/// By place in `traces`. `costs`: as measured_host() found them, waits for a core left out.
std::vector<LaneStarts> measured_starts(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                                        const HostCosts& costs);

}  // namespace fsdpbench::clock
