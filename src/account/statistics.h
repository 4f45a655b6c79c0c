#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdpbench::account {

/// Kind of the bounds of a Summary: of few values no interval of any use can be had, and of one none at all.
enum class IntervalKind : std::uint8_t { bootstrap, range, one_value, prediction };
/// "95 % bootstrap", "range", "one value", "95 % prediction": of something that is yet to be measured.
std::string_view to_string(IntervalKind kind);
IntervalKind interval_of(int values);  ///< what summarize() gives for so many

/// Median of a sample and how far it can be trusted.
struct Summary {
  double median = 0;
  double ci_low = 0;
  double ci_high = 0;
  IntervalKind interval = IntervalKind::one_value;  ///< of ci_low and ci_high
  double min = 0;
  double max = 0;
  int n = 0;
};

/// Samples that a bootstrap draws.
inline constexpr int kResamples = 2000;

/// The mean of the two middle values for an even count. `values` must not be empty.
double median(std::vector<double> values);

/// From five values on, the 95 % percentile bootstrap of the median: kResamples samples from a fixed seed, so equal
/// input gives equal output. For fewer values the bounds are the range, and for one that value. `values` must not be
/// empty.
Summary summarize(const std::vector<double>& values);

/// Differences below this are of no practical interest, however certain.
inline constexpr double kPracticalThreshold = 0.01;

/// Noise between two random halves of a sample: the 95th percentile of |median / median - 1| over 1000 random
/// splits from a fixed seed. A difference between two configurations that is not larger than this is no news. Absent
/// for fewer than four values.
std::optional<double> aa_noise(const std::vector<double>& values);

/// A median and how far it can be trusted. `n` values; with none of them all is 0.
struct Estimate {
  double median = 0;
  double low = 0;  ///< of a 95 % interval of the median
  double high = 0;
  int n = 0;
  friend bool operator==(const Estimate&, const Estimate&) = default;
};

/// The median with its order-statistic interval: the closest pair of order statistics around the middle that hold the
/// median of the distribution with at least 95 %, by the binomial distribution, whatever the distribution (David and
/// Nagaraja, Order Statistics, 7.1). Fewer than 6 values have no such pair: then it is their range.
Estimate median_interval(std::vector<double> values);

/// Agreement of two figures on the order of the same things, from -1 to 1: Kendall's tau-b (Kendall 1945), in which a
/// tie of one figure lowers it and a tie of both does not count. Absent where one of them is the same of all things.
std::optional<double> kendall_tau(std::span<const std::pair<double, double>> figures);

/// Scatter of a simulation's steps, in milliseconds, and what it costs.
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
