#include "accept/robust.h"

#include <algorithm>
#include <cmath>

#include "account/statistics.h"

namespace fsdpbench::accept {
namespace {

/// How many values from each end may be left out so that the rest still holds the median with 95 %.
int values_to_leave_out(int n) {
  double below = std::exp2(-n);  // P(none is below the median)
  double tail = 0;
  int k = 0;
  for (double term = below; tail + term <= 0.025 && k < n / 2; ++k) {
    tail += term;
    term *= static_cast<double>(n - k) / (k + 1);
  }
  return k;
}

}  // namespace

Interval median_interval(std::vector<double> values) {
  Interval interval;
  interval.n = static_cast<int>(values.size());
  if (values.empty()) return interval;
  std::ranges::sort(values);
  interval.median = account::median(values);
  // Beyond 1000 values 2^-n is 0, and the normal distribution does.
  const int n = interval.n;
  const int left_out = n > 1000 ? static_cast<int>(std::floor(n / 2.0 - 0.98 * std::sqrt(n))) : values_to_leave_out(n);
  const auto first = static_cast<std::size_t>(std::max(0, left_out - 1));
  interval.low = values[first];
  interval.high = values[values.size() - 1 - first];
  return interval;
}

double robust_deviation(std::span<const double> values) {
  const double middle = account::median({values.begin(), values.end()});
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * account::median(std::move(distances));
}

double allowed_shortfall(std::span<const double> relative, double least) {
  const double deviation = robust_deviation(relative);
  return std::max(least, 3 * deviation) + 2 * 1.25 * deviation / std::sqrt(static_cast<double>(relative.size()));
}

}  // namespace fsdpbench::accept
