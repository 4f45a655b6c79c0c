#include "account/compare.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <stdexcept>

#include "account/statistics.h"
#include "base/student.h"

namespace fsdpbench::account {
namespace {

constexpr int kSplits = 1000;
constexpr std::size_t kFewestForTrimming = 5;

struct ConfidenceInterval {
  double low;
  double high;
};

/// An unbiased index below `n`. std::uniform_int_distribution may differ between standard libraries; results may not.
std::size_t below(std::mt19937& random, std::size_t n) {
  const std::uint32_t bound = static_cast<std::uint32_t>(n);
  const std::uint32_t reject = (0U - bound) % bound;
  std::uint64_t value = random();
  while (value < reject) value = random();
  return value % bound;
}

double resampled_median(const std::vector<double>& values, std::mt19937& random) {
  std::vector<double> sample(values.size());
  for (double& value : sample) value = values[below(random, values.size())];
  return median(sample);
}

/// The percentile interval of what `statistic` gives for resampled data.
template <class Statistic>
ConfidenceInterval bootstrap(const Statistic& statistic) {
  std::mt19937 random(12345);
  std::vector<double> values(kResamples);
  for (double& value : values) value = statistic(random);
  std::ranges::sort(values);
  const auto outside = static_cast<std::size_t>(std::lround(kResamples * (1 - kComparisonConfidence) / 2));
  return {values[outside], values[kResamples - 1 - outside]};
}

Verdict verdict_of(const Comparison& c, double threshold) {
  if (std::abs(c.ratio - 1) < threshold) return Verdict::no_difference;
  if (c.ci_high < 1) return Verdict::faster;
  return c.ci_low > 1 ? Verdict::slower : Verdict::no_difference;
}

ConfidenceInterval yuen(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  const std::size_t cut = n < kFewestForTrimming ? 0 : n / 5;
  const std::size_t kept = n - 2 * cut;
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(cut);
  const double mean =
      std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(kept), 0.0) / static_cast<double>(kept);
  // Winsorised: what was cut counts as the last value kept.
  for (double& value : values) value = std::clamp(value, values[cut], values[n - 1 - cut]);
  const double centre = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  double squares = 0;
  for (const double value : values) squares += (value - centre) * (value - centre);
  const double error = std::sqrt(squares / static_cast<double>(kept * (kept - 1)));
  const double width = student_quantile((1 - kComparisonConfidence) / 2, static_cast<int>(kept - 1)) * error;
  return {mean - width, mean + width};
}

std::vector<double> trial_medians(const std::vector<std::vector<double>>& trials) {
  std::vector<double> medians;
  for (const std::vector<double>& trial : trials) medians.push_back(median(trial));
  return medians;
}

}  // namespace

std::optional<double> aa_noise(const std::vector<double>& values) {
  if (values.size() < 4) return std::nullopt;
  std::mt19937 random(54321);
  std::vector<double> shuffled = values, differences(kSplits);
  const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
  for (double& difference : differences) {
    for (std::size_t i = shuffled.size() - 1; i > 0; --i) std::swap(shuffled[i], shuffled[below(random, i + 1)]);
    const double one = median({shuffled.begin(), shuffled.begin() + half});
    const double other = median({shuffled.begin() + half, shuffled.end()});
    difference = std::abs(one / other - 1);
  }
  std::ranges::sort(differences);
  return differences[kSplits * 95 / 100 - 1];
}

Comparison compare_samples(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                           double threshold) {
  if (a.size() != b.size() || a.size() < static_cast<std::size_t>(kFewestTrials)) {
    throw std::invalid_argument("a comparison needs at least three trials of each side, equally many");
  }
  const std::vector<double> medians_a = trial_medians(a), medians_b = trial_medians(b);
  std::vector<double> logs;
  for (std::size_t i = 0; i < a.size(); ++i) logs.push_back(std::log(medians_b[i] / medians_a[i]));

  const ConfidenceInterval resampled = bootstrap([&](std::mt19937& random) { return resampled_median(logs, random); });
  const ConfidenceInterval trimmed = yuen(logs);
  Comparison c;
  c.median_a = median(medians_a);
  c.median_b = median(medians_b);
  c.ratio = std::exp(median(logs));
  c.ci_low = std::exp(std::min(resampled.low, trimmed.low));
  c.ci_high = std::exp(std::max(resampled.high, trimmed.high));
  c.verdict = verdict_of(c, threshold);
  const std::optional<double> noise_a = aa_noise(medians_a), noise_b = aa_noise(medians_b);
  if (noise_a && noise_b) c.aa_noise = std::max(*noise_a, *noise_b);
  return c;
}

Comparison compare_runs(const std::vector<double>& a, const std::vector<double>& b, double threshold) {
  if (std::min(a.size(), b.size()) < static_cast<std::size_t>(kFewestTrials)) {
    throw std::invalid_argument("a comparison of two runs needs at least three steps of each");
  }
  Comparison c;
  c.median_a = median(a);
  c.median_b = median(b);
  c.ratio = c.median_b / c.median_a;
  const ConfidenceInterval resampled = bootstrap([&](std::mt19937& random) {
    const double one = resampled_median(a, random);
    return resampled_median(b, random) / one;
  });
  c.ci_low = resampled.low;
  c.ci_high = resampled.high;
  c.verdict = verdict_of(c, threshold);
  return c;
}

Comparison compare_exactly(const std::vector<double>& a, const std::vector<double>& b, double threshold) {
  Comparison c;
  c.median_a = median(a);
  c.median_b = median(b);
  c.ratio = c.ci_low = c.ci_high = c.median_b / c.median_a;
  c.verdict = verdict_of(c, threshold);
  return c;
}
namespace {

constexpr const char* kAdvice =
    "what was trained means nothing, and times of such numbers may not be those of ordinary ones; a smaller "
    "train.learning_rate, or train.clip_norm, usually helps";

}  // namespace

std::string why_diverged(std::span<const double> losses, std::int64_t not_finite) {
  const auto bad = std::ranges::find_if(losses, [](double loss) { return !std::isfinite(loss); });
  if (bad != losses.end()) {
    return fmt::format("the loss is {} at step {} of {}, warm-up included: {}", loss_text(*bad),
                       bad - losses.begin() + 1, losses.size(), kAdvice);
  }
  if (not_finite > 0) {
    return fmt::format("{} elements of the final parameters are NaN or infinite: {}", not_finite, kAdvice);
  }
  return {};
}

std::string why_no_digest(const config::RunConfig& config, std::int64_t not_finite) {
  if (!config.train.params_digest) return "train.params_digest = false leaves the final parameters where they are";
  if (not_finite == 0) {
    return config.device.repeats()
               ? ""
               : "another run of the same may end with other bits; device.deterministic = true gives the "
                 "same, more slowly";
  }
  return fmt::format("{} elements of the final parameters are NaN or infinite, and runs that are would seem equal",
                     not_finite);
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "NaN";
  return std::isinf(loss) ? "infinite" : fmt::format("{:.4f}", loss);
}

}  // namespace fsdpbench::account
