#pragma once

#include <vector>

namespace fsdpbench::account {

/// How a simulation's steps scatter, in milliseconds, and what that costs.
struct JitterSpread {
  double p50_ms = 0;
  double p95_ms = 0;
  double p99_ms = 0;
  double without_jitter_ms = 0;  ///< the step in which nothing is drawn

  /// The share of the median step that jitter costs; negative where jitter makes the step shorter.
  double lost_to_jitter_pct() const { return 100 * (p50_ms - without_jitter_ms) / p50_ms; }
};

/// Quantiles with linear interpolation between order statistics (numpy's default). `steps_ms`: at least one, each > 0.
JitterSpread jitter_spread(std::vector<double> steps_ms, double without_jitter_ms);

}  // namespace fsdpbench::account
