#include "clock/line_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "clock/uncertainty.h"

namespace fsdpbench::clock {
namespace {

/// Below this a time is mostly rounding: its relative error says nothing.
constexpr double kShort_ns = 1000;

/// Sums over samples, each weighted so that errors count relative to its time.
struct Sums {
  double ff = 0, fa = 0, aa = 0, ft = 0, at = 0;
};

/// `before`: what the samples' times are taken relative to; none: the times themselves.
Sums weigh(std::span<const LineSample> samples, const LineFit* before) {
  Sums sums;
  for (const LineSample& s : samples) {
    const double ns = before != nullptr ? before->ns(s.fixed, s.amount) : s.ns;
    const double weight = 1 / (ns * ns + kShort_ns * kShort_ns);
    sums.ff += weight * s.fixed * s.fixed;
    sums.fa += weight * s.fixed * s.amount;
    sums.aa += weight * s.amount * s.amount;
    sums.ft += weight * s.fixed * s.ns;
    sums.at += weight * s.amount * s.ns;
  }
  return sums;
}

/// To the nanosecond, or within what the repetitions of each differ by.
bool meets(const LineFit& fit, std::span<const LineSample> samples, bool within_spread) {
  return std::ranges::all_of(samples, [&](const LineSample& s) {
    return std::abs(fit.ns(s.fixed, s.amount) - s.ns) <= std::max(1.0, within_spread ? s.spread_ns : 0.0);
  });
}

LineFit line_through(std::span<const LineSample> samples, std::optional<double> fixed_ns, const LineFit* before) {
  LineFit fit;
  fit.samples = static_cast<int>(samples.size());
  const Sums sums = weigh(samples, before);
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
  if (sums.aa > 0 && (meets(fit, samples, true) || determinant <= 1e-9 * sums.ff * sums.aa)) return fit;
  const double fixed =
      sums.aa > 0 ? (sums.ft * sums.aa - sums.at * sums.fa) / determinant : (sums.ff > 0 ? sums.ft / sums.ff : 0.0);
  if (!(fixed > 0)) return fit;
  fit.fixed_ns = fixed;
  fit.ns_per_amount = slope(fixed);
  if (fit.ns_per_amount == 0 && sums.ff > 0) fit.fixed_ns = sums.ft / sums.ff;
  return fit;
}

}  // namespace

LineFit fit_line(std::span<const LineSample> samples, std::optional<double> fixed_ns) {
  // Errors relative to the measured times would put the line below their mean, by twice their variance: what is short by
  // chance would weigh most. So they are taken relative to the line, which is found in a few rounds.
  constexpr int kRounds = 6;
  LineFit fit = line_through(samples, fixed_ns, nullptr);
  for (int round = 0; round < kRounds && !meets(fit, samples, false); ++round) {
    fit = line_through(samples, fixed_ns, &fit);
  }
  std::vector<double> off;
  for (const LineSample& s : samples) {
    const double ns = fit.ns(s.fixed, s.amount);
    if (std::abs(s.ns - ns) > 1) off.push_back((s.ns - ns) / std::max(ns, kShort_ns));
    else off.push_back(0);  // a nanosecond is how times are rounded
  }
  if (!off.empty()) fit.within = next_within(off);
  return fit;
}

}  // namespace fsdpbench::clock
