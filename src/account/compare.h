#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::account {

/// How much two random halves of one sample differ: the 95th percentile of |median / median - 1| over 1000 random
/// splits from a fixed seed. A difference between two configurations that is not larger than this is no news. Absent
/// for fewer than four values.
std::optional<double> aa_noise(const std::vector<double>& values);

enum class Verdict : std::uint8_t { faster, slower, no_difference };  ///< of B, seen from A

/// B against A, from trials that took turns.
struct Comparison {
  double median_a = 0;  ///< median over trials of the trials' medians
  double median_b = 0;
  double ratio = 1;  ///< B / A: median over pairs of neighbouring trials
  double ci_low = 1;
  double ci_high = 1;
  Verdict verdict = Verdict::no_difference;
  std::optional<double> aa_noise;  ///< of whole trials: the larger of A's and B's own
};

/// Differences below this are of no practical interest, however certain.
inline constexpr double kPracticalThreshold = 0.01;
/// Confidence of the interval, and therefore of the verdict. With 98 %, up to 5 of 100 comparisons of equals were
/// called different: twelve pairs say less of their tails than the interval believes.
inline constexpr double kComparisonConfidence = 0.99;
/// Below this, no interval of any use can be had.
inline constexpr int kFewestTrials = 3;

/// a[i] and b[i] are the values (steps) of the i-th trial of A and of B, which ran next to each other. Steps of a trial
/// share its luck, so a trial counts as one value, its median, and drift of the machine cancels within a pair. The
/// interval is that of the log ratio over pairs, on each side the wider of two: the percentile bootstrap of the median
/// that resamples pairs (2000 times, fixed seed), and Yuen's interval of the 20 % trimmed mean (K. K. Yuen, Biometrika
/// 61, 1974), because the bootstrap of few values is too narrow (T. Hesterberg, The American Statistician 69, 2015).
/// B is faster or slower if the interval leaves 1 out and the ratio is at least `threshold` away from 1.
/// Equal numbers of trials, at least kFewestTrials, none empty; throws std::invalid_argument otherwise.
Comparison compare_samples(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                           double threshold = kPracticalThreshold);

/// B against A from the steps of one run a side, which did not take turns: the ratio of their medians, with the
/// percentile bootstrap that resamples each side's steps. Whatever the machine did between the runs counts as a
/// difference, so this speaks of two runs, not of two configurations. No A/A noise: that takes several runs. At least
/// kFewestTrials steps each; throws std::invalid_argument otherwise.
Comparison compare_runs(const std::vector<double>& a, const std::vector<double>& b,
                        double threshold = kPracticalThreshold);

/// B against A where nothing is left to luck, as of two simulations with equal steps: the ratio of the medians, which
/// is its own interval. None may be empty.
Comparison compare_exactly(const std::vector<double>& a, const std::vector<double>& b,
                           double threshold = kPracticalThreshold);

/// Why training has diverged, as a sentence: a loss that is NaN or infinite, or `not_finite` > 0 elements of the final
/// parameters that are; empty if all are finite. `losses` are those of each step, warm-up included.
std::string why_diverged(std::span<const double> losses, std::int64_t not_finite);

/// Why a training with so many such elements has no digest of its parameters, as a sentence; empty if it has one.
std::string why_no_digest(const config::RunConfig& config, std::int64_t not_finite);

/// A loss as people read it: "4.2186", "NaN", "infinite".
std::string loss_text(double loss);

}  // namespace fsdpbench::account
