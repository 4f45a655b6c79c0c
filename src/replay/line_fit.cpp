#include "replay/line_fit.h"

#include <algorithm>
#include <cmath>

namespace fsdpbench::replay {
namespace {

/// Below this a time is mostly rounding: its relative error says nothing.
constexpr double kShort_ns = 1000;

/// Sums over samples, each weighted so that errors count relative to its time.
struct Sums {
  double ff = 0, fa = 0, aa = 0, ft = 0, at = 0;
};

Sums weigh(std::span<const LineSample> samples) {
  Sums sums;
  for (const LineSample& s : samples) {
    const double weight = 1 / (s.ns * s.ns + kShort_ns * kShort_ns);
    sums.ff += weight * s.fixed * s.fixed;
    sums.fa += weight * s.fixed * s.amount;
    sums.aa += weight * s.amount * s.amount;
    sums.ft += weight * s.fixed * s.ns;
    sums.at += weight * s.amount * s.ns;
  }
  return sums;
}

bool meets_all(const LineFit& fit, std::span<const LineSample> samples) {
  return std::ranges::all_of(samples, [&](const LineSample& s) {
    return std::abs(fit.ns(s.fixed, s.amount) - s.ns) <= std::max(1.0, s.spread_ns);
  });
}

}  // namespace

LineFit fit_line(std::span<const LineSample> samples, std::optional<double> fixed_ns) {
  LineFit fit;
  fit.samples = static_cast<int>(samples.size());
  const Sums sums = weigh(samples);
  const auto slope = [&](double fixed) {
    return sums.aa > 0 ? std::max(0.0, (sums.at - fixed * sums.fa) / sums.aa) : 0.0;
  };
  if (fixed_ns) {
    fit.fixed_ns = *fixed_ns;
    fit.ns_per_amount = slope(*fixed_ns);
    return fit;
  }
  fit.ns_per_amount = slope(0);
  const double determinant = sums.ff * sums.aa - sums.fa * sums.fa;
  if (sums.aa > 0 && (meets_all(fit, samples) || determinant <= 1e-9 * sums.ff * sums.aa)) return fit;
  const double fixed =
      sums.aa > 0 ? (sums.ft * sums.aa - sums.at * sums.fa) / determinant : (sums.ff > 0 ? sums.ft / sums.ff : 0.0);
  if (!(fixed > 0)) return fit;
  fit.fixed_ns = fixed;
  fit.ns_per_amount = slope(fixed);
  if (fit.ns_per_amount == 0 && sums.ff > 0) fit.fixed_ns = sums.ft / sums.ff;
  return fit;
}

}  // namespace fsdpbench::replay
