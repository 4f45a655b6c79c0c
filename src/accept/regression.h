#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accept/verdict.h"

namespace fsdpbench::accept {

/// One figure of one result: a bandwidth, a time of a step, bytes.
struct MeasuredFigure {
  std::string name;
  std::string unit;
  bool higher_is_better = false;
  bool counted = false;   ///< not measured: the same whenever it is repeated, as bytes are
  bool explains = false;  ///< a part of another figure: by single numbers it decides nothing, and need not
  std::vector<double>
      samples;     ///< repetitions within the result (steps, trials); may be empty although there is a value
  Interval value;  ///< of the samples, or as the result has it
};

/// What one result says.
struct ResultFigures {
  std::string name;  ///< of the result, for people
  std::vector<MeasuredFigure> figures;
  double others_share = 0;  ///< of the processors that its ranks computed on, what other programs took; 0: little
};

/// What the results of a baseline say of one figure together.
struct BaselineFigure {
  MeasuredFigure figure;              ///< its value is the median over results, or of a single one its own
  std::vector<double> values;         ///< the median of each result that counts
  std::vector<std::string> left_out;  ///< results whose value is an outlier, "node7 (2.1 GB/s)"
};

/// All figures of all `results`, in the order in which they first occur. Of several results one whose value is off the
/// others is left out, again and again until none is, as SuperBench makes its baselines; not by a fixed threshold
/// alone, but by Student's test with the scatter of the others. Never leaves fewer than three, or half of them.
std::vector<BaselineFigure> baseline_figures(std::span<const ResultFigures> results);

/// What a comparison of a figure rests on, the best first.
enum class ChangeEvidence : std::uint8_t {
  counted,    ///< it does not scatter
  results,    ///< three results of the baseline or more: how much results scatter is known
  samples,    ///< samples within one or two results each: speaks of these results only
  intervals,  ///< two intervals as their files have them
  numbers,    ///< two single numbers: how much they scatter is not known
  none,       ///< one side does not have it
};
std::string_view to_string(ChangeEvidence evidence);

/// A figure now and before.
struct Change {
  Judgement judgement;  ///< rule "change"; its value is the figure now, its bound the baseline's median
  Interval before;
  bool higher_is_better = false;
  double ratio = 1;  ///< now / before; 1 if one is missing
  double low = 1;    ///< of its interval
  double high = 1;
  double at_most = 1;  ///< how many times as bad it is at most, with 96 % certainty
  ChangeEvidence evidence = ChangeEvidence::none;
  bool better = false;                ///< as certainly as a failing one is worse
  std::vector<std::string> left_out;  ///< as in BaselineFigure
};

/// Differences below this are of no interest: repeated runs of a healthy machine agree within some 3 %.
inline constexpr double kChangeThreshold = 0.05;

/// Holds the figures of `now` (one result, or several of the same machine) against those of `baseline`, none empty.
/// A figure has one of three answers, so that none is given by chance more often than is said here:
/// - fail: it is worse for certain, by half of `threshold` or more, and may be worse by all of it. All figures together
///   accuse an unchanged machine in at most two of a hundred gates (Bonferroni).
/// - pass: that it is worse by `threshold` is excluded with 96 % (Change::at_most): a figure that is worse by so much
///   passes in at most five of a hundred gates.
/// - inconclusive: neither. More results, on either side, make it rarer.
/// What is certain, by the best evidence there is:
/// - results: the scatter of the baseline's results, of logarithms; with it the interval in which a new result of an
///   unchanged machine lies (Student's prediction interval, of medians). A figure's own few results say little of their
///   scatter, so one that is smaller is averaged with that of all figures of the same unit, which counts as up to six
///   results more (a moderated variance; G. Smyth, Statistical Applications in Genetics 3, 2004). A part of another
///   figure neither lends nor fails: the whole does.
/// What other programs took of the processors widens every interval: without them a figure could have been better by
/// 1 / (1 - that share), before and now.
/// - samples: metrics::compare_runs, 99 %. Intervals: they must not meet. Counted: any difference is real.
/// Two single numbers cannot be judged, whatever they are: inconclusive, or unrated if they only explain another
/// figure. What is new is unrated. What the baseline has and `now` has not is inconclusive, and so is a measured figure
/// of 0.
std::vector<Change> judge_changes(std::span<const ResultFigures> baseline, std::span<const ResultFigures> now,
                                  double threshold = kChangeThreshold);

}  // namespace fsdpbench::accept
