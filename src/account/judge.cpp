#include "account/judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <stdexcept>

#include "base/enum_table.h"
#include "base/student.h"

namespace fsdpbench::account {
namespace {

constexpr auto kEnough = static_cast<std::size_t>(kFewestTrials);
constexpr double kMissed = 0.04;          // of each figure that has changed by the threshold
constexpr double kFalseOutliers = 0.005;  // of values that scatter alike
constexpr double kLeastOutlier = 0.05;    // repeated runs of a healthy machine agree within some 3 %

bool positive(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double value) { return value > 0; });
}

double log_mean(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += std::log(value) / static_cast<double>(values.size());
  return mean;
}

/// Scatter of logarithms, and its source.
struct Scatter {
  double variance = 0;
  int freedom = 0;
};

Scatter scatter_of(const std::vector<double>& values) {
  return {log_variance(values), static_cast<int>(values.size()) - 1};
}

std::vector<double> without_outliers(const std::vector<double>& values) {
  const std::vector<bool> counts = inliers(values);
  std::vector<double> kept;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (counts[i]) kept.push_back(values[i]);
  }
  return kept;
}

/// Scatter of both sides, each around its own middle, without outliers.
Scatter within(const std::vector<double>& a, const std::vector<double>& b) {
  Scatter both;
  for (const std::vector<double>* side : {&a, &b}) {
    const Scatter one = scatter_of(without_outliers(*side));
    both.variance += one.variance * one.freedom;
    both.freedom += one.freedom;
  }
  both.variance /= both.freedom;
  return both;
}

/// Shrunk upwards only (a moderated variance; G. Smyth, Statistical Applications in Genetics 3, 2004): a few values say
/// little of their scatter, and small messages scatter more than large ones of the same unit.
Scatter with_known(Scatter own, const std::vector<KnownScatter>& also) {
  double sum = own.variance * own.freedom;
  int freedom = own.freedom;
  for (const KnownScatter& known : also) {
    sum += known.worth * known.variance;
    freedom += known.worth;
  }
  return {std::max(own.variance, sum / freedom), freedom};
}

/// By how much more the median of n normal values varies than one of them; the factor to a mean is pi / 2 from 11 on.
double median_variance(std::size_t n) {
  constexpr std::array kOfFew{1.0, 1.0, 1.346, 1.193, 1.434, 1.288, 1.473, 1.345, 1.495, 1.383};
  return (n <= kOfFew.size() ? kOfFew[n - 1] : std::numbers::pi / 2) / static_cast<double>(n);
}

/// Whether a value at `place` belongs to another distribution than the others: Student's of logarithms, by the scatter
/// of the others, for the farthest of all (Bonferroni). Three robust deviations of so few values would leave out
/// results of a busy machine that only scatter, and the scatter of the rest would be too small.
bool is_outlier(const std::vector<double>& values, std::size_t place) {
  std::vector<double> others = values;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(place));
  const double off = std::abs(std::log(values[place]) - log_mean(others));
  const double error = std::sqrt(log_variance(others) * (1 + 1 / static_cast<double>(others.size())));
  const double tail = kFalseOutliers / (2 * static_cast<double>(values.size()));
  return off > std::log1p(kLeastOutlier) && off > student_quantile(tail, static_cast<int>(others.size()) - 1) * error;
}

/// Above 1 for more of a time and for less of a rate.
double worse_factor(double ratio, const Rule& rule) { return rule.more_is_better ? 1 / ratio : ratio; }

/// The interval of the ratio, whose logarithm scatters by `share` of the variance.
void by_scatter(Scatter scatter, double share, const Rule& rule, Difference& d) {
  const double error = std::sqrt(scatter.variance * share);
  const double width = student_quantile(rule.tail / rule.figures, scatter.freedom) * error;
  const double likely = std::exp(student_quantile(kMissed, scatter.freedom) * error);
  d.low = d.ratio * std::exp(-width);
  d.high = d.ratio * std::exp(width);
  d.at_most = worse_factor(d.ratio, rule) * likely;
  d.at_least = worse_factor(d.ratio, rule) / likely;
}

void by_ends(double low, double high, const Rule& rule, Difference& d) {
  d.low = low;
  d.high = high;
  d.at_most = worse_factor(rule.more_is_better ? low : high, rule);
  d.at_least = worse_factor(rule.more_is_better ? high : low, rule);
}

RestsOn best_evidence(const Samples& before, const Samples& now, const Rule& rule) {
  if (rule.counted) return RestsOn::counted;
  if (rule.in_turns) return RestsOn::turns;
  if (before.results.size() >= kEnough && positive(before.results) && positive(now.results)) return RestsOn::results;
  if (std::min(before.repetitions.size(), now.repetitions.size()) >= kEnough && positive(before.repetitions) &&
      positive(now.repetitions)) {
    return RestsOn::samples;
  }
  return before.value.n > 1 && now.value.n > 1 && before.value.low > 0 ? RestsOn::intervals : RestsOn::numbers;
}

Verdict verdict_of(const Difference& d, const Rule& rule) {
  const double worse = worse_factor(d.ratio, rule);
  const double least = worse_factor(rule.more_is_better ? d.high : d.low, rule);
  const double most = worse_factor(rule.more_is_better ? d.low : d.high, rule);
  const auto matters = [&](double middle, double farthest) {
    return middle - 1 >= rule.threshold / 2 && farthest - 1 >= rule.threshold;
  };
  if (d.evidence == RestsOn::numbers) return Verdict::inconclusive;
  if (least > 1 && matters(worse, most)) return Verdict::slower;
  if (most < 1 && matters(1 / worse, 1 / least)) return Verdict::faster;
  const bool excluded = d.at_most - 1 < rule.threshold && 1 / d.at_least - 1 < rule.threshold;
  return excluded || d.low == d.high ? Verdict::no_difference : Verdict::inconclusive;
}

}  // namespace

std::string_view to_string(RestsOn evidence) {
  constexpr EnumNames<RestsOn> kNames{
      "counted",        "trials in turns", "several results", "samples of these results", "intervals of these results",
      "single numbers", "nothing"};
  return kNames[evidence];
}

std::string_view to_string(Verdict verdict) {
  constexpr EnumNames<Verdict> kNames{"faster", "slower", "no difference", "inconclusive"};
  return kNames[verdict];
}

double log_variance(const std::vector<double>& values) {
  std::vector<double> logs;  // of ratios, so that values that are alike scatter by 0 exactly
  for (const double value : values) logs.push_back(std::log(value / values.front()));
  double mean = 0, squares = 0;
  for (const double log : logs) mean += log / static_cast<double>(logs.size());
  for (const double log : logs) squares += (log - mean) * (log - mean);
  return squares / static_cast<double>(logs.size() - 1);
}

std::vector<bool> inliers(const std::vector<double>& values) {
  std::vector<bool> kept(values.size(), true);
  if (!positive(values)) return kept;
  const std::size_t fewest = std::max(kEnough, values.size() / 2 + 1);
  for (;;) {
    std::vector<double> left;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!kept[i]) continue;
      left.push_back(values[i]);
      places.push_back(i);
    }
    if (left.size() <= fewest) return kept;
    const double middle = median(left);
    const auto off = [middle](double value) { return std::abs(std::log(value / middle)); };
    const auto farthest = static_cast<std::size_t>(std::ranges::max_element(left, {}, off) - left.begin());
    if (!is_outlier(left, farthest)) return kept;
    kept[places[farthest]] = false;
  }
}

Difference judge(const Samples& before, const Samples& now, const Rule& rule) {
  Difference d;
  d.ratio = now.value.median / before.value.median;
  d.evidence = best_evidence(before, now, rule);
  switch (d.evidence) {
    case RestsOn::turns: {
      if (before.results.size() != now.results.size() || before.results.size() < kEnough) {
        throw std::invalid_argument("a comparison needs at least three trials of each side, equally many");
      }
      std::vector<double> ratios;
      for (std::size_t i = 0; i < now.results.size(); ++i) ratios.push_back(now.results[i] / before.results[i]);
      const std::vector<double> kept = without_outliers(ratios);
      d.ratio = std::exp(log_mean(kept));
      by_scatter(with_known(scatter_of(kept), rule.also), 1 / static_cast<double>(kept.size()), rule, d);
      break;
    }
    case RestsOn::results:
      by_scatter(with_known(scatter_of(before.results), rule.also),
                 median_variance(before.results.size()) + median_variance(now.results.size()), rule, d);
      break;
    case RestsOn::samples:
      by_scatter(within(before.repetitions, now.repetitions),
                 median_variance(before.repetitions.size()) + median_variance(now.repetitions.size()), rule, d);
      break;
    case RestsOn::intervals:
      by_ends(now.value.low / before.value.high, now.value.high / before.value.low, rule, d);
      break;
    case RestsOn::counted:
    case RestsOn::numbers:
    case RestsOn::nothing: by_ends(d.ratio, d.ratio, rule, d); break;
  }
  if (d.evidence == RestsOn::samples || d.evidence == RestsOn::intervals) {
    d.low /= rule.unseen;
    d.high *= rule.unseen;
    d.at_most *= rule.unseen;
    d.at_least /= rule.unseen;
  }
  if (d.evidence != RestsOn::counted && d.evidence != RestsOn::numbers) {
    // Times may have been shorter, and rates higher.
    d.low /= rule.more_is_better ? before.slowed : now.slowed;
    d.high *= rule.more_is_better ? now.slowed : before.slowed;
    d.at_most *= before.slowed;
    d.at_least /= now.slowed;
  }
  d.verdict = verdict_of(d, rule);
  return d;
}

std::optional<int> results_to_exclude(const Samples& before, const Samples& now, const Rule& rule) {
  const double variance = best_evidence(before, now, rule) == RestsOn::results ? log_variance(before.results) : 0;
  for (int n = std::max(static_cast<int>(before.results.size()) + 1, kFewestTrials); n <= 100; ++n) {
    Difference d{.ratio = now.value.median / before.value.median};
    by_scatter(with_known({variance, n - 1}, rule.also), median_variance(n) + median_variance(now.results.size()), rule,
               d);
    if (d.at_most * before.slowed - 1 < rule.threshold) return n;
  }
  return std::nullopt;
}

Difference judge_in_turns(std::span<const std::vector<double>> before, std::span<const std::vector<double>> now,
                          double threshold) {
  const auto side = [](std::span<const std::vector<double>> trials) {
    Samples samples;
    for (const std::vector<double>& trial : trials) samples.results.push_back(median(trial));
    return samples;
  };
  return judge(side(before), side(now), {.threshold = threshold, .in_turns = true});
}

}  // namespace fsdpbench::account
