#pragma once

#include <span>
#include <vector>

namespace fsdpbench::accept {

/// A median and how far it can be trusted. `n` values; with none of them all is 0.
struct Interval {
  double median = 0;
  double low = 0;  ///< of a 95 % interval of the median
  double high = 0;
  int n = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// The median with its order-statistic interval: the closest pair of order statistics around the middle that hold the
/// median of the distribution with at least 95 %, by the binomial distribution, whatever the distribution (David and
/// Nagaraja, Order Statistics, 7.1). Fewer than 6 values have no such pair: then it is their range.
Interval median_interval(std::vector<double> values);

/// Median of the distances from the median, times 1.4826: the standard deviation of a normal distribution, unmoved by
/// some values that belong to another one. `values` must not be empty.
double robust_deviation(std::span<const double> values);

/// By how much less than the median of its peers a healthy value may be, as a share of it:
/// the larger of `least` and three robust deviations, and what the median of so few may itself be off (two of its
/// standard errors, 1.25 deviations / sqrt(n)). `relative` are values over their median; must not be empty.
double allowed_shortfall(std::span<const double> relative, double least = 0.05);

/// So many peers are needed to say that one of them is slower than the others.
inline constexpr int kFewestPeers = 5;

}  // namespace fsdpbench::accept
