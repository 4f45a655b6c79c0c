#include "account/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <stdexcept>

namespace fsdpbench::account {
namespace {

constexpr int kFewestForBootstrap = 5;
constexpr int kSplits = 1000;

/// Number of values that may be left out from each end so that the rest still holds the median with 95 %.
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

std::string_view to_string(IntervalKind kind) {
  switch (kind) {
    case IntervalKind::bootstrap: return "95 % bootstrap";
    case IntervalKind::range: return "range";
    case IntervalKind::one_value: return "one value";
    case IntervalKind::prediction: return "95 % prediction";
  }
  return {};
}

IntervalKind interval_of(int values) {
  return values >= kFewestForBootstrap ? IntervalKind::bootstrap
         : values > 1                  ? IntervalKind::range
                                       : IntervalKind::one_value;
}

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("median of nothing");
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

Summary summarize(const std::vector<double>& values) {
  Summary s;
  s.median = median(values);
  s.n = static_cast<int>(values.size());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  s.min = s.ci_low = *low;
  s.max = s.ci_high = *high;
  s.interval = interval_of(s.n);
  if (s.interval != IntervalKind::bootstrap) return s;

  std::mt19937 random(12345);
  std::uniform_int_distribution<std::size_t> index(0, values.size() - 1);
  std::vector<double> medians(kResamples), sample(values.size());
  for (double& m : medians) {
    for (double& value : sample) value = values[index(random)];
    m = median(sample);
  }
  std::sort(medians.begin(), medians.end());
  s.ci_low = medians[kResamples * 25 / 1000];
  s.ci_high = medians[kResamples * 975 / 1000 - 1];
  return s;
}

std::optional<double> aa_noise(const std::vector<double>& values) {
  if (values.size() < 4) return std::nullopt;
  std::mt19937 random(54321);
  std::vector<double> shuffled = values, differences(kSplits);
  const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
  for (double& difference : differences) {
    // Not std::shuffle, which may differ between standard libraries. Each place has the same share of 2^32 numbers.
    for (std::size_t i = shuffled.size() - 1; i > 0; --i) std::swap(shuffled[i], shuffled[random() % (i + 1)]);
    const double one = median({shuffled.begin(), shuffled.begin() + half});
    const double other = median({shuffled.begin() + half, shuffled.end()});
    difference = std::abs(one / other - 1);
  }
  std::ranges::sort(differences);
  return differences[kSplits * 95 / 100 - 1];
}

Estimate median_interval(std::vector<double> values) {
  Estimate interval;
  interval.n = static_cast<int>(values.size());
  if (values.empty()) return interval;
  std::ranges::sort(values);
  interval.median = median(values);
  // Beyond 1000 values 2^-n is 0, and the normal distribution does.
  const int n = interval.n;
  const int left_out = n > 1000 ? static_cast<int>(std::floor(n / 2.0 - 0.98 * std::sqrt(n))) : values_to_leave_out(n);
  const auto first = static_cast<std::size_t>(std::max(0, left_out - 1));
  interval.low = values[first];
  interval.high = values[values.size() - 1 - first];
  return interval;
}

std::optional<double> kendall_tau(std::span<const std::pair<double, double>> figures) {
  double agree = 0, first = 0, second = 0;  // pairs in the same order less those in another; that are not tied
  for (std::size_t i = 0; i < figures.size(); ++i) {
    for (std::size_t k = i + 1; k < figures.size(); ++k) {
      const double a = figures[i].first - figures[k].first, b = figures[i].second - figures[k].second;
      first += a != 0;
      second += b != 0;
      if (a != 0 && b != 0) agree += (a > 0) == (b > 0) ? 1 : -1;
    }
  }
  if (first == 0 || second == 0) return std::nullopt;
  return agree / std::sqrt(first * second);
}

JitterSpread jitter_spread(std::vector<double> steps_ms, double without_jitter_ms) {
  std::ranges::sort(steps_ms);
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(steps_ms.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, steps_ms.size() - 1);
    return std::lerp(steps_ms[low], steps_ms[high], at - static_cast<double>(low));
  };
  return {quantile(0.5), quantile(0.95), quantile(0.99), without_jitter_ms};
}

}  // namespace fsdpbench::account
