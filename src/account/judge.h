#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "account/statistics.h"

namespace fsdpbench::account {

/// One side's measurements of one figure: a time, a rate, bytes.
struct Samples {
  std::vector<double> results = {};  ///< the median of each result (trial, run): what its repetitions share is its luck
  std::vector<double> repetitions = {};  ///< within the only result, or within all of too few; may be empty
  Estimate value = {};                   ///< of the results together, or as the only one has it; n = 0: not measured
  double slowed = 1;                     ///< by at most this factor other programs may have made it worse
};

/// Evidence that a comparison rests on, the best first.
enum class RestsOn : std::uint8_t {
  counted,    ///< it does not scatter
  turns,      ///< pairs of trials that ran next to each other
  results,    ///< three results before, or more: how much results scatter is known
  samples,    ///< repetitions within one or two results each: speaks of these results only
  intervals,  ///< two intervals as their files have them
  numbers,    ///< two single numbers: how much they scatter is not known
  nothing,    ///< one side does not have it
};
std::string_view to_string(RestsOn evidence);

enum class Verdict : std::uint8_t { faster, slower, no_difference, inconclusive };  ///< of what is now: better, worse …
std::string_view to_string(Verdict verdict);

/// A variance of logarithms that is known from elsewhere, worth so many results more.
struct KnownScatter {
  double variance = 0;
  int worth = 0;
};

/// The chance that an end of an interval is on the wrong side: 99 % for both ends.
inline constexpr double kTail = 0.005;
/// Fewer do not show how much they scatter.
inline constexpr int kFewestTrials = 3;

/// Threshold for a difference.
struct Rule {
  double threshold = kPracticalThreshold;  ///< smaller differences do not matter, as a fraction
  double tail = kTail;                     ///< of both sides each, and of all `figures` together
  int figures = 1;                         ///< judged at once: any of them may differ by chance (Bonferroni)
  bool more_is_better = false;
  bool counted = false;                 ///< repeated, it is the same
  bool in_turns = false;                ///< result i of both sides ran next to each other
  double unseen = 1;                    ///< a factor by which results differ from run to run, which few cannot show
  std::vector<KnownScatter> also = {};  ///< what is known of how results scatter, beside their own values
};

/// Now against before.
struct Difference {
  double ratio = 1;  ///< now / before
  double low = 1;    ///< of its interval
  double high = 1;
  double at_most = 1;   ///< how many times as bad it is at most, with 96 % certainty
  double at_least = 1;  ///< and at least
  Verdict verdict = Verdict::inconclusive;
  RestsOn evidence = RestsOn::nothing;
};

/// Change of a figure. Values count by their logarithms. The middle of several results, or of repetitions, is
/// their median; of pairs that took turns it is the mean of their ratios, without outliers.
/// - slower: it is worse for certain, by half of the threshold or more, and may be worse by all of it (what is worse by
///   just the threshold is measured as less every other time). faster: likewise.
/// - no_difference: that it is worse, or better, by the threshold is excluded, with 96 % each.
/// - inconclusive: none of these.
/// Certainty is Student's: by the scatter of the ratios of pairs where trials took turns, since slow drift of the
/// machine hits both of a pair; of the earlier results where there are three or more; else of the repetitions of both
/// sides without their outliers, or two intervals that do not meet.
///
/// [Note: why not a bootstrap]
/// Percentiles of resampled medians are too narrow for the few values that there are (T. Hesterberg, The American
/// Statistician 69, 2015): of three trials they are the extremes. Student's interval is exact for three. Heavy tails
/// make it wider, not narrower. It also takes what is known from elsewhere (Rule::also), and a correction for many
/// figures, whose tails no resampling of ten values reaches.
/// Both sides must have values above 0 unless they are counted. With `in_turns` equally many results, at least
/// kFewestTrials; throws std::invalid_argument otherwise.
Difference judge(const Samples& before, const Samples& now, const Rule& rule);

/// How many earlier results would exclude that the figure is worse by the threshold, if they have the middle of these
/// and scatter as these do (of fewer than kFewestTrials nobody knows: not at all). Absent: 100 would not.
std::optional<int> results_to_exclude(const Samples& before, const Samples& now, const Rule& rule);

/// Trials of both sides, in turns, each with its repetitions (steps).
Difference judge_in_turns(std::span<const std::vector<double>> before, std::span<const std::vector<double>> now,
                          double threshold = kPracticalThreshold);

/// Which of `values` count: all, or those that are no outliers. The farthest leaves again and again, as SuperBench
/// makes its baselines; not by a fixed threshold alone, but by Student's test with the scatter of the others. Never
/// leaves fewer than three, or half of them.
std::vector<bool> inliers(const std::vector<double>& values);

/// Variance of logarithms, of two values or more above 0.
double log_variance(const std::vector<double>& values);

}  // namespace fsdpbench::account
