#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fsdpbench {

// Middle values that were measured, never a mean of two. The median of statistics, which is the mean of the two middle
// values of an even count, is account::median(). `values` must not be empty.

/// The median; for an even count the lower of the two.
template <typename T>
T lower_median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The median; for an even count the upper of the two.
template <typename T>
T upper_median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The value that Student's t of `freedom` degrees exceeds with the probability `tail`, 0 < tail < 0.5 and freedom
/// >= 1. By bisection of the finite sums in Abramowitz and Stegun, 26.7.3 and 26.7.4.
double student_quantile(double tail, int freedom);

}  // namespace fsdpbench
