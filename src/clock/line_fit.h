#pragma once

#include <optional>
#include <span>

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

}  // namespace fsdpbench::clock
