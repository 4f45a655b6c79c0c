#pragma once

#include <vector>

namespace fsdpbench::metrics {

/// Median of a sample with its 95 % bootstrap confidence interval.
struct Summary {
  double median = 0;
  double ci_low = 0;
  double ci_high = 0;
  double min = 0;
  double max = 0;
  int n = 0;
};

/// The mean of the two middle values for an even count. `values` must not be empty.
double median(std::vector<double> values);

/// Percentile bootstrap of the median: 2000 resamples from a fixed seed, so equal input gives equal output. With
/// fewer than five values the interval is the range of the sample, which is wider than any resampling would say.
/// `values` must not be empty.
Summary summarize(const std::vector<double>& values);

}  // namespace fsdpbench::metrics
